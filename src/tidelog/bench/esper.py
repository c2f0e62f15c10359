"""Esper, an engine for patterns of events, as a peer: one EPL statement fed from a file.

Its jars are downloaded from Maven by the code that downloads connectors. A JDK compiles the
program `EsperFeed.java` when it starts it.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tidelog.bench.ours import Fact
from tidelog.errors import UsageError
from tidelog.spark.connectors import download

VERSION = "9.0.0"
TOOLS = ("java", "javac")
"""The commands that have to be there."""
_PACKAGES = ("esper-runtime", "esper-compiler")
_PROGRAM = Path(__file__).with_name("EsperFeed.java")
_MEMORY = "-Xmx6g"


def feed(module: str, events: Iterable[Fact], runs: int) -> list[tuple[float, int]]:
    """Feed events one by one; return the seconds and the number of results of each run.

    `module` is EPL with a statement named `view`. The values of events are whole numbers.
    """
    jars = download([], [f"com.espertech:{name}:{VERSION}" for name in _PACKAGES], excludes=())
    with tempfile.TemporaryDirectory(prefix="tidelog-esper-") as folder:
        text, lines = Path(folder) / "module.epl", Path(folder) / "events.tsv"
        text.write_text(module, encoding="utf-8")
        with lines.open("w", encoding="utf-8") as file:
            file.writelines("\t".join(map(str, (name, *row))) + "\n" for name, row in events)
        command = ["java", _MEMORY, "-cp", os.pathsep.join(map(str, jars)), str(_PROGRAM)]
        command += [str(text), str(lines), str(runs)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"Esper failed:\n{done.stderr}")
    found = [line.split("\t") for line in done.stdout.splitlines() if "\t" in line]
    return [(float(seconds), int(results)) for seconds, results in found]
