"""Which relations can lose rows when rows are only inserted."""

from collections import Counter

from tests.generators.programs import RandomCase, Shape, check_cases
from tests.samples import sample
from tests.seeds import case_seeds
from tidelog import Database, Program
from tidelog.errors import DataError
from tidelog.logic.signs import Signs, signs, signs_of_insertions

SHAPE = Shape(relations=(2, 4), facts=(0, 5), epochs=(2, 3), aggregates=0.2)
PROGRAM = """
.decl road(x: symbol, y: symbol)
.decl town(x: symbol)
.decl reach(x: symbol, y: symbol)
.decl stuck(x: symbol)
.decl free(x: symbol)
.decl roads(n: number)
.decl apart(x: symbol)
.decl seen(x: symbol, at: number)
.retain seen(at, 10)
.decl now(x: symbol)
reach(x, y) :- road(x, y).
reach(x, z) :- reach(x, y), road(y, z).
stuck(x) :- town(x), !road(x, _).
free(x) :- town(x), !stuck(x).
roads(n) :- n = count : { road(_, _) }.
apart(x) :- town(x), 2 = 1 + 1.
now(x) :- seen(x, _).
"""


def test_negation_reverses_the_sign_and_aggregates_have_both() -> None:
    found = signs(Program.parse(PROGRAM), {"road": Signs.PLUS})
    assert found["reach"] is Signs.PLUS
    assert found["stuck"] is Signs.MINUS
    assert found["free"] is Signs.PLUS
    assert found["roads"] is Signs.BOTH
    assert found["apart"] is found["town"] is Signs.NONE


def test_deletions_are_the_other_way_round() -> None:
    found = signs(Program.parse(PROGRAM), {"road": Signs.MINUS})
    assert found["reach"] is found["free"] is Signs.MINUS
    assert found["stuck"] is Signs.PLUS


def test_rows_that_are_retained_for_a_time_are_deleted_by_newer_ones() -> None:
    found = signs_of_insertions(Program.parse(PROGRAM))
    assert found["seen"] is found["now"] is Signs.BOTH
    assert found["apart"] is Signs.PLUS


def test_no_epoch_has_a_sign_that_was_excluded() -> None:
    seen: Counter[bool] = Counter()

    def check(case: RandomCase) -> str | None:
        program = Program.parse(case.program)
        try:
            db = Database(program, facts=case.facts, engine="reference")
        except DataError:
            return None
        for epoch in case.epochs:
            try:
                with db.transaction() as tx:
                    for name, (inserted, _) in epoch.items():
                        tx.insert(name, inserted)
            except DataError:
                continue
            given = {name: Signs.PLUS for name, (inserted, _) in epoch.items() if inserted}
            possible = signs(program, given)
            for name, change in tx.changes.items():
                found = Signs.of(inserted=bool(change.inserted), deleted=bool(change.deleted))
                seen[possible[name] is Signs.BOTH] += bool(found)
                if found & ~possible[name]:
                    return f"{name} has {found}, but {possible[name]} was expected"
        return None

    check_cases(case_seeds(sample(60, 1000), offset=70_000), check, SHAPE)
    assert seen[False]
    assert seen[True]
