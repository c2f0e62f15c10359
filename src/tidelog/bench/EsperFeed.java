import com.espertech.esper.common.client.EPCompiled;
import com.espertech.esper.common.client.configuration.Configuration;
import com.espertech.esper.compiler.client.CompilerArguments;
import com.espertech.esper.compiler.client.EPCompilerProvider;
import com.espertech.esper.runtime.client.EPDeployment;
import com.espertech.esper.runtime.client.EPEventService;
import com.espertech.esper.runtime.client.EPRuntime;
import com.espertech.esper.runtime.client.EPRuntimeProvider;
import com.espertech.esper.runtime.client.EPStatement;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Feeds events to Esper and measures how long it takes: java EsperFeed.java MODULE EVENTS RUNS
 *
 * MODULE is a file of EPL with a statement named `view`. EVENTS has a line for each event: its type
 * and its values, whole numbers, with tabs between them. The events are read first, then fed once
 * to warm up, then RUNS times, each time to a new runtime. For each of these it prints the seconds
 * and the number of results.
 */
public final class EsperFeed {
    private static long results;

    public static void main(String[] args) throws Exception {
        List<String> types = new ArrayList<>();
        List<Object[]> events = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(args[1]))) {
            String[] words = line.split("\t");
            Object[] values = new Object[words.length - 1];
            for (int i = 0; i < values.length; i++) {
                values[i] = Long.valueOf(words[i + 1]);
            }
            types.add(words[0]);
            events.add(values);
        }
        Configuration configuration = new Configuration();
        configuration.getRuntime().getThreading().setInternalTimerEnabled(false);
        EPCompiled compiled = EPCompilerProvider.getCompiler()
            .compile(Files.readString(Path.of(args[0])), new CompilerArguments(configuration));
        for (int run = 0; run <= Integer.parseInt(args[2]); run++) {
            double seconds = feed(configuration, compiled, types, events);
            if (run > 0) {
                System.out.println(seconds + "\t" + results);
            }
        }
    }

    private static double feed(
            Configuration configuration, EPCompiled compiled, List<String> types,
            List<Object[]> events) throws Exception {
        results = 0;
        EPRuntime runtime = EPRuntimeProvider.getRuntime("feed", configuration);
        runtime.initialize();
        EPDeployment deployment = runtime.getDeploymentService().deploy(compiled);
        for (EPStatement statement : deployment.getStatements()) {
            if (statement.getName().equals("view")) {
                statement.addListener((inserted, deleted, from, by) -> results += inserted.length);
            }
        }
        EPEventService service = runtime.getEventService();
        long start = System.nanoTime();
        for (int i = 0; i < types.size(); i++) {
            service.sendEventObjectArray(events.get(i), types.get(i));
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        runtime.destroy();
        return seconds;
    }
}
