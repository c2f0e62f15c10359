"""The relations that keyed upserts need besides a program's own.

An upsert replaces the row with the same key. That row has to be found, at a cost proportional to
the change. Rules do this: for each relation R that is upserted, the program gets

    tidelog_keys_R(keys)            normally empty; the keys to look up
    tidelog_replaced_R(columns)     the rows of R that have these keys
    tidelog_sequence_R(keys, at)    the last sequence of each key, also of deleted ones
    tidelog_known_R(keys, at)       the last sequence of the keys to look up

The last two exist only if there is a sequence. `KernelEngine.probe` evaluates the rules. They are
in the text of the program, so a stored state tells which relations it has.

With shards, every shard has all keys and sequences, and replaced rows are where the rows of R are:
the old row of a key may be in another shard than the new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidelog.errors import UsageError
from tidelog.logic.program import Program, Relation
from tidelog.sharding.sharding import Partitioning, Sharding, Variant

_PREFIXES = _KEYS, _REPLACED, _SEQUENCE, _KNOWN = (
    "tidelog_keys_",
    "tidelog_replaced_",
    "tidelog_sequence_",
    "tidelog_known_",
)


@dataclass(frozen=True)
class Upsert:
    """A relation whose rows are replaced by key."""

    relation: str
    keys: tuple[int, ...]
    """The positions of the key columns."""
    has_sequence: bool = False

    @property
    def asked(self) -> str:
        """The relation of the keys to look up."""
        return _KEYS + self.relation

    @property
    def replaced(self) -> str:
        """The relation of the rows that have these keys."""
        return _REPLACED + self.relation

    @property
    def sequence(self) -> str:
        """The relation of the last sequences of all keys."""
        return _SEQUENCE + self.relation

    @property
    def known(self) -> str:
        """The relation of the last sequences of the keys to look up."""
        return _KNOWN + self.relation

    def names(self) -> tuple[str, ...]:
        """Return the names of the relations that the program gets."""
        more = (self.sequence, self.known) if self.has_sequence else ()
        return (self.asked, self.replaced, *more)

    def text(self, relation: Relation) -> str:
        """Return the declarations and rules that the program gets.

        They are part of the program that is stored with the state: do not change them.
        """
        columns = [f"c{i}: {column.declared}" for i, column in enumerate(relation.columns)]
        keys = ", ".join(columns[i] for i in self.keys)
        every, own = (", ".join(f"c{i}" for i in at) for at in (range(len(columns)), self.keys))
        lines = [
            f"// The rows of `{relation.name}` are replaced by key.",
            f".decl {self.asked}({keys})",
            f".decl {self.replaced}({', '.join(columns)})",
            f"{self.replaced}({every}) :- {self.asked}({own}), {_atom(relation, columns)}.",
        ]
        if self.has_sequence:
            lines += [
                f".decl {self.sequence}({keys}, at: number)",
                f".decl {self.known}({keys}, at: number)",
                f"{self.known}({own}, at) :- {self.asked}({own}), {self.sequence}({own}, at).",
            ]
        return "\n".join(lines) + "\n"


def _atom(relation: Relation, columns: Sequence[str]) -> str:
    names = [f"c{i}" for i in range(len(columns))]
    if relation.functional:
        return f"{relation.name}[{', '.join(names[:-1])}] = {names[-1]}"
    return f"{relation.name}({', '.join(names)})"


def with_upserts(program: Program, upserts: Sequence[Upsert]) -> Program:
    """Return the program with the relations that these upserts need."""
    if not upserts:
        return program
    text = program.text if program.text.endswith("\n") else program.text + "\n"
    for upsert in upserts:
        for name in upsert.names():
            if name in program.relations:
                raise UsageError(f"{program.name}: `{name}` is a name reserved for pipelines")
        text += upsert.text(program.relations[upsert.relation])
    return Program.parse(text, program.name)


def is_hidden(relation: str) -> bool:
    """Return whether a relation was added for upserts."""
    return relation.startswith(_PREFIXES)


def owner_of(relation: str) -> str:
    """Return the relation that such a relation was added for."""
    return next(relation.removeprefix(x) for x in _PREFIXES if relation.startswith(x))


def without_upserts(program: Program) -> Program:
    """Return the program without the relations that were added. Rules keep their numbers."""
    if not any(map(is_hidden, program.relations)):
        return program
    return replace(
        program,
        relations={n: r for n, r in program.relations.items() if not is_hidden(n)},
        rules=tuple(rule for rule in program.rules if not is_hidden(rule.head.relation)),
        strata=tuple(s for s in program.strata if not any(map(is_hidden, s.relations))),
    )


def with_upserts_sharded(program: Program, sharding: Sharding) -> Sharding:
    """Return the sharding of the program's own relations, extended to those that were added."""
    hidden = [name for name in program.relations if is_hidden(name)]
    if not hidden:
        return sharding
    whole: Partitioning = (None,) * len(sharding.grid.sides)
    shown, rules = dict(sharding.shown), dict(sharding.rules)
    variants = list(sharding.variants)
    number_of = {rule.head.relation: rule.id for rule in program.rules}
    for name in hidden:
        if not name.startswith(_REPLACED):
            shown[name] = Variant(name, whole)
            variants.append(shown[name])
            if name.startswith(_KNOWN):
                relation = name.removeprefix(_KNOWN)
                reads = (Variant(_KEYS + relation, whole), Variant(_SEQUENCE + relation, whole))
                rules[shown[name], number_of[name]] = reads
            continue
        relation = name.removeprefix(_REPLACED)
        asked = Variant(_KEYS + relation, whole)
        for read in sharding.variants_of(relation):
            own = Variant(name, read.partitioning)
            shown.setdefault(name, own)
            variants.append(own)
            rules[own, number_of[name]] = (asked, read)
    return replace(sharding, shown=shown, variants=tuple(variants), rules=rules)
