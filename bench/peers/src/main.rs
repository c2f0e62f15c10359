//! Programs of the benchmarks for differential dataflow, on one worker.
//!
//!     tidelog-peers closure rows.txt changes.txt delete
//!     tidelog-peers join rows.txt changes.txt insert
//!
//! A file has a row in each line: a relation, 0 or 1, and two numbers. Each row of the changes is
//! deleted and inserted again, or inserted and deleted again, as two epochs. The output has the
//! number of results, then seconds: those of the first evaluation, and those of each epoch.

use std::cell::Cell;
use std::fs;
use std::rc::Rc;
use std::time::Instant;

use differential_dataflow::input::Input;
use differential_dataflow::operators::iterate::Iterate;
use differential_dataflow::VecCollection;
use timely::dataflow::operators::probe::Handle;

type Row = (u64, u64);

fn read(path: &str) -> Vec<(usize, Row)> {
    let text = fs::read_to_string(path).expect("the file can be read");
    text.lines()
        .map(|line| {
            let mut numbers = line.split(' ').map(|n| n.parse::<u64>().expect("a number"));
            let mut next = || numbers.next().expect("three numbers");
            (next() as usize, (next(), next()))
        })
        .collect()
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (program, rows, changes) = (args[1].clone(), read(&args[2]), read(&args[3]));
    let sign = if args[4] == "insert" { 1 } else { -1 };
    timely::execute_directly(move |worker| {
        let mut probe = Handle::new();
        let size = Rc::new(Cell::new(0isize));
        let counted = size.clone();
        let (mut left, mut right) = worker.dataflow(|scope| {
            let (left, xs): (_, VecCollection<'_, u64, Row>) = scope.new_collection();
            let (right, ys): (_, VecCollection<'_, u64, Row>) = scope.new_collection();
            // Relations are sets, as in the other engines.
            let (xs, ys) = (xs.distinct(), ys.distinct());
            let results = match program.as_str() {
                "closure" => xs
                    .clone()
                    .iterate(|scope, paths| {
                        let edges = xs.enter(scope);
                        paths
                            .map(|(x, y)| (y, x))
                            .join_map(edges.clone(), |_, x, z| (*x, *z))
                            .concat(edges)
                            .distinct()
                    }),
                "join" => xs
                    .map(|(x, y)| (y, x))
                    .join_map(ys, |_, x, z| (*x, *z))
                    .distinct(),
                _ => panic!("no such program"),
            };
            results
                .inspect(move |(_, _, change)| counted.set(counted.get() + *change))
                .probe_with(&mut probe);
            (left, right)
        });
        let mut time = 0u64;
        let mut epoch = |part: &[(usize, Row)], change: isize| {
            let start = Instant::now();
            for (relation, row) in part {
                let input = if *relation == 0 { &mut left } else { &mut right };
                input.update(*row, change);
            }
            time += 1;
            left.advance_to(time);
            right.advance_to(time);
            left.flush();
            right.flush();
            worker.step_while(|| probe.less_than(&time));
            start.elapsed().as_secs_f64()
        };
        let first = epoch(&rows, 1);
        println!("{}\n{}", size.get(), first);
        for row in &changes {
            println!("{}", epoch(std::slice::from_ref(row), sign));
            println!("{}", epoch(std::slice::from_ref(row), -sign));
        }
    });
}
