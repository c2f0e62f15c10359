"""A random case on a durable database that is closed, copied and opened again on the way."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random

import tidelog
from tests.databases import durable
from tests.durable.parts import last_epoch, published_end, records
from tests.generators.programs import RandomCase, Row
from tests.maintain.comparing import Fresh, Given, must_fail
from tidelog.database.database import kernel_of
from tidelog.durable.framing import VIEW
from tidelog.logic.program import Program
from tidelog.reference import evaluate

Contents = Mapping[str, frozenset[Row]]


class DurableHistory:
    """Replays cases, and counts what has happened in them.

    After every epoch contents, levels and counts, and what readers see, are compared with the
    reference and with a fresh bootstrap; so is the past, and what changed since. Snapshots are
    begun early and take a few bytes at each commit, so that most of them are under way when
    something happens.
    """

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def check(self, case: RandomCase) -> None:
        """Assert that the state survives all of the case."""
        with tempfile.TemporaryDirectory() as folder:
            _History(case, Path(folder), self.seen).run()


class _History:
    def __init__(self, case: RandomCase, folder: Path, seen: Counter[str]) -> None:
        self._case, self._folder, self._seen = case, folder, seen
        self._rng = Random(case.seed)
        self._program = Program.parse(case.program)
        self._copies = 0
        self._path = folder / "state"
        self._settings = {
            "snapshot_bytes": self._rng.choice((1, 600, 1500, 3000)),
            "step_bytes": self._rng.choice((1, 300, 10**9)),
            "segment_bytes": self._rng.choice((500, 10**9)),
        }
        self._retain = self._rng.choice((0, 2, 100))

    def run(self) -> None:
        program = self._program
        given: Given = {name: set(self._case.facts.get(name, ())) for name in program.relations}
        try:
            self._past = [evaluate(program, given)]
        except tidelog.DataError:
            must_fail(lambda: self._open(given))
            return
        self._seen["programs"] += 1
        db = self._open(given)
        fresh = Fresh(program, given)
        reader, read_path = tidelog.open_reader(self._path), self._path
        for epoch in self._case.epochs:
            inserted = {n: set(adds) - set(removes) for n, (adds, removes) in epoch.items()}
            deleted = {n: set(removes) - set(adds) for n, (adds, removes) in epoch.items()}
            new = {
                n: (rows - deleted.get(n, set())) | inserted.get(n, set())
                for n, rows in given.items()
            }
            try:
                after = evaluate(program, new)
            except tidelog.DataError:
                self._seen["epochs that fail"] += 1
                must_fail(lambda i=inserted, d=deleted, held=db: _apply(held, i, d))
            else:
                self._seen["epochs"] += 1
                _apply(db, inserted, deleted)
                given = new
                self._past.append(after)
            self._compare(db, fresh, given)
            if self._rng.random() < 0.4:
                db = self._again(db)
                self._compare(db, fresh, given)
            if read_path != self._path or self._rng.random() < 0.3:
                reader, read_path = tidelog.open_reader(self._path), self._path
            if self._rng.random() < 0.5:
                assert reader.refresh() == db.epoch
                self._seen["refreshed readers"] += 1
            _same(reader, self._past[reader.epoch], "a reader")
            self._look_back(db)
        db.close()

    def _open(self, given: Given | None = None) -> tidelog.Database:
        return durable(
            self._program, self._path, given, retain_epochs=self._retain, **self._settings
        )

    def _again(self, db: tidelog.Database) -> tidelog.Database:
        """Return the database as a new process would find it."""
        if self._rng.random() < 0.5:
            db.close()
            self._seen["closed"] += 1
        else:
            # As after a kill: the files as they are, whatever is under way.
            self._copies += 1
            self._seen["copied"] += 1
            copy = self._folder / f"copy{self._copies}"
            shutil.copytree(self._path, copy)
            self._path = copy
            if self._rng.random() < 0.5:
                self._lose_views()
        again = self._open()
        assert again.opened is not None
        assert again.opened.rebuilt == ""
        self._seen["traces"] += any(s.name == "leapfrog" for s in kernel_of(again).strategies)
        self._seen["snapshots read"] += again.opened.snapshot_epoch > 0
        self._seen["epochs replayed"] += again.opened.replayed_epochs
        assert again.epoch == db.epoch
        return again

    def _lose_views(self) -> None:
        """As after a power cut: what nobody has synced may not be there, or a part of it."""
        _, found = records(self._path)
        if found and found[-1].kind == VIEW:
            last = last_epoch(self._path)
            if published_end(self._path) <= last.given.end:
                last.keep(self._rng.randrange(last.view.start, last.view.end))
                self._seen["lost views"] += 1

    def _compare(self, db: tidelog.Database, fresh: Fresh, given: Given) -> None:
        assert db.epoch == len(self._past) - 1
        _same(db, self._past[-1], "the database")
        engine = kernel_of(db)
        for name, state in fresh.state(given).items():
            assert engine.levels_and_counts(name) == state, f"levels and counts of {name}"
            assert engine.given_count(name) == len(given[name]), f"given rows of {name}"
        engine.check()

    def _look_back(self, db: tidelog.Database) -> None:
        assert db.state is not None
        assert db.state.problem == ""
        oldest = db.state.oldest_epoch
        assert oldest <= max(0, db.epoch - self._retain)
        since = self._rng.randint(oldest, db.epoch)
        _same(db.at(since), self._past[since], f"epoch {since}")
        self._seen["looks at the past"] += 1
        for name in self._program.relations:
            rows = self._past[since][name]
            for epoch, change in db.changes(name, since):
                inserted, deleted = frozenset(change.inserted), frozenset(change.deleted)
                before, after = self._past[epoch - 1][name], self._past[epoch][name]
                assert (inserted, deleted) == (after - before, before - after)
                rows = (rows - deleted) | inserted
                self._seen["changes"] += 1
            assert rows == self._past[-1][name], f"changes of {name} since {since}"


def _apply(db: tidelog.Database, inserted: Given, deleted: Given) -> None:
    with db.transaction() as tx:
        for name, rows in inserted.items():
            tx.insert(name, rows)
        for name, rows in deleted.items():
            tx.delete(name, rows)


def _same(
    held: tidelog.Database | tidelog.DatabaseReader | tidelog.Past, expected: Contents, what: str
) -> None:
    for name, rows in expected.items():
        assert frozenset(held.view(name)) == rows, f"{what}: rows of {name}"
