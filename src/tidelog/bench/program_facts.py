"""The facts of a generated Java program, for the analysis in `programs/whole_program.dl`.

The program has as many classes as one asks for; the last two thirds are a library that it does not
use. Class i uses classes shortly behind it, so that what is reached spreads from the main class
through the first third in many steps: the depth of the recursion. Names are as long as those of
real programs, some 80 characters.

Everything depends on the seed only, so the facts are the same on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

OBJECT, THROWABLE = "java.lang.Object", "java.lang.Throwable"
_WORDS = (
    "account", "adapter", "archive", "balance", "buffer", "catalog", "channel", "cluster",
    "command", "context", "customer", "delivery", "document", "element", "endpoint", "factory",
    "gateway", "handler", "history", "invoice", "journal", "keyword", "ledger", "listener",
    "manager", "message", "monitor", "network", "observer", "packet", "partner", "pipeline",
    "policy", "process", "product", "provider", "record", "registry", "request", "resolver",
    "resource", "response", "schedule", "session", "shipment", "snapshot", "storage", "strategy",
    "template", "transfer", "visitor", "warehouse", "worker",
)  # fmt: skip
_REACH = 42  # how far behind a class are those that it uses
_NAMES = 24  # names of methods that classes override
_DECLARED = 9  # methods of a class
_VARIABLES = 9  # further variables of a method


class _Facts:
    """Collects facts; writes them to files."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}

    def add(self, relation: str, *values: str) -> None:
        self.lines.setdefault(relation, []).append("\t".join(values))

    def write(self, folder: Path, relations: Iterable[str]) -> int:
        """Write a file for each relation; return how many facts there are."""
        total = 0
        for relation in relations:
            lines = self.lines.get(relation, [])
            total += len(lines)
            text = "\n".join([*lines, ""])
            (folder / f"{relation}.facts").write_text(text, encoding="utf-8", newline="")
        return total


def write_facts(folder: Path, relations: Iterable[str], classes: int, seed: int) -> int:
    """Write the files of facts of a program with this many classes; return how many facts."""
    return _Program(classes, random.Random(seed)).facts().write(folder, relations)


class _Program:
    def __init__(self, classes: int, rng: random.Random) -> None:
        self._rng = rng
        self._facts = _Facts()
        self._class = [self._class_name(i) for i in range(classes)]
        self._interface = [f"{self._class[i]}Interface" for i in range(0, classes, 8)]
        self._super = [self._super_of(i) for i in range(classes)]
        self._methods = [list(self._methods_of(i)) for i in range(classes)]
        self._signature = [
            {m: self._signed(i, m) for m in ms} for i, ms in enumerate(self._methods)
        ]

    # --- names ---

    def _word(self) -> str:
        return self._rng.choice(_WORDS)

    def _class_name(self, i: int) -> str:
        name = f"{self._word().capitalize()}{self._word().capitalize()}{i}"
        return f"org.{_WORDS[i // 40 % len(_WORDS)]}.{_WORDS[i // 8 % len(_WORDS)]}.{name}"

    def _super_of(self, i: int) -> int:
        """Return the superclass: one of the few classes before it, or -1."""
        return i - 1 - self._rng.randrange(6) if i > 8 and i % 3 else -1

    def _methods_of(self, i: int) -> Iterator[int]:
        """Yield the numbers of the methods that a class declares; its constructor is -1."""
        yield -1
        yield from sorted(self._rng.sample(range(_NAMES), _DECLARED))

    def _name(self, method: int) -> str:
        return "<init>" if method < 0 else f"{_WORDS[2 * method]}{_WORDS[method].capitalize()}"

    def _descriptor(self, method: int) -> str:
        parameters = ",".join(["Object"] * self._arity(method))
        return f"{'void' if method < 0 else 'Object'}({parameters})"

    def _arity(self, method: int) -> int:
        return method % 3 if method >= 0 else 1

    def _signed(self, i: int, method: int) -> str:
        result, parameters = self._descriptor(method).split("(")
        return f"<{self._class[i]}: {result} {self._name(method)}({parameters}>"

    # --- facts ---

    def facts(self) -> _Facts:
        """Return the facts of the program."""
        add = self._facts.add
        add("ClassType", OBJECT)
        add("ClassType", THROWABLE)
        add("DirectSuperclass", THROWABLE, OBJECT)
        add("MainClass", self._class[0])
        for interface in self._interface:
            add("InterfaceType", interface)
        for i in range(len(self._class)):
            self._class_facts(i)
        return self._facts

    def _class_facts(self, i: int) -> None:
        add, rng, name = self._facts.add, self._rng, self._class[i]
        add("ClassType", name)
        above = self._super[i]
        failing = i % 37 == 5
        default = THROWABLE if failing else OBJECT
        add("DirectSuperclass", name, self._class[above] if above >= 0 else default)
        add("DirectSuperinterface", name, self._interface[i // 8])
        add("ArrayType", f"{name}[]")
        add("ComponentType", f"{name}[]", name)
        if i % 11 == 4:
            add("AbstractClass", name)
        for field in ("first", "second", "shared"):
            add("Field", self._field(i, field), name, field, OBJECT)
        initializer = f"<{name}: void <clinit>()>"
        add("Method", initializer, "<clinit>", "void()", name)
        add("Modifier", "static", initializer)
        add("ClassInitializer", name, initializer)
        self._allocate(initializer, 0, i, f"{initializer}/value")
        add("VarType", f"{initializer}/value", name)
        add("VarMethod", f"{initializer}/value", initializer)
        store = f"{initializer}/store/1"
        add(
            "StoreStatic", store, "1", f"{initializer}/value", self._field(i, "shared"), initializer
        )
        if i == 0:
            main = f"<{name}: void main(java.lang.String[])>"
            add("Method", main, "main", "void(java.lang.String[])", name)
            self._body(0, main, 1, is_static=True)
        helper = f"<{name}: Object create{name.rpartition('.')[2]}(Object)>"
        add("Method", helper, f"create{name.rpartition('.')[2]}", "Object(Object)", name)
        add("Modifier", "static", helper)
        self._body(i, helper, 1, is_static=True)
        for method in self._methods[i]:
            signature = self._signature[i][method]
            add("Method", signature, self._name(method), self._descriptor(method), name)
            add("Modifier", "public", signature)
            if rng.random() < 0.05 and method >= 0:
                add("Modifier", "native", signature)
                add("NativeReturn", signature, self._heap(signature, 0, i))
                add("HeapType", self._heap(signature, 0, i), name)
                add("ThisVar", signature, f"{signature}/this")
            else:
                self._body(i, signature, self._arity(method), is_static=False)

    def _field(self, i: int, field: str) -> str:
        return f"<{self._class[i]}: {OBJECT} {field}>"

    def _heap(self, method: str, at: int, i: int) -> str:
        return f"{method}/new {self._class[i]}/{at}"

    def _allocate(self, method: str, at: int, i: int, to: str) -> None:
        heap = self._heap(method, at, i)
        self._facts.add("HeapType", heap, self._class[i])
        self._facts.add("AssignHeap", f"{method}/assign/{at}", str(at), heap, to, method)

    def _used(self, i: int) -> int:
        """Return a class that class i uses: one shortly behind it, seldom one before it."""
        last = len(self._class) // 3 if i * 3 < len(self._class) else len(self._class) - 1
        if self._rng.random() < 0.01:
            return self._rng.randrange(max(0, i - _REACH), i + 1)
        return min(last, i + 1 + int(_REACH * self._rng.random() ** 2))

    def _body(self, i: int, method: str, arity: int, *, is_static: bool) -> None:
        """Add a method with its variables and instructions."""
        add, rng = self._facts.add, self._rng
        this = f"{method}/this"
        parameters = [f"{method}/parameter{n}" for n in range(arity)]
        local = [f"{method}/local{n}" for n in range(_VARIABLES)]
        for variable in (*parameters, *local):
            add("VarType", variable, OBJECT)
            add("VarMethod", variable, method)
        if not is_static:
            add("ThisVar", method, this)
            add("VarType", this, self._class[i])
            add("VarMethod", this, method)
        for n, variable in enumerate(parameters):
            add("FormalParam", str(n), method, variable)
        at = 0

        def place(kind: str) -> tuple[str, str]:
            nonlocal at
            at += 1
            return f"{method}/{kind}/{at}", str(at)

        made = self._used(i)
        self._allocate(method, at, made, local[0])
        given = parameters[0] if parameters else local[0]
        # The constructor of the object, then methods of it and of what was passed.
        constructor = self._signature[made][-1]
        add("SpecialCall", *place("call"), constructor, local[0], method)
        add("ActualParam", "0", f"{method}/call/{at}", given if rng.random() < 0.2 else local[0])
        for n in range(2):
            other = rng.choice(self._methods[made][1:])
            call, index = place("call")
            add("VirtualCall", call, index, self._signature[made][other], local[0], method)
            for argument in range(self._arity(other)):
                passed = given if rng.random() < 0.5 else local[n]
                add("ActualParam", str(argument), call, passed)
            add("AssignReturn", call, local[n + 1])
        if rng.random() < 0.3:
            static = self._used(i)
            name = self._class[static]
            call, index = place("call")
            callee = f"<{name}: Object create{name.rpartition('.')[2]}(Object)>"
            add("StaticCall", call, index, callee, method)
            add("ActualParam", "0", call, local[0])
            add("AssignReturn", call, local[3])
        add("AssignLocal", *place("assign"), local[0], local[4], method)
        add("AssignCast", *place("cast"), local[1], local[5], self._class[made], method)
        add("AssignNull", *place("null"), local[6], OBJECT, method)
        if not is_static:
            field = self._field(i, rng.choice(("first", "second")))
            if rng.random() < 0.5:
                source = given if rng.random() < 0.5 else local[4]
                add("StoreField", *place("store"), source, this, field, method)
            if rng.random() < 0.5:
                add("LoadField", *place("load"), local[7], this, field, method)
        if rng.random() < 0.15:
            shared = self._field(self._used(i), "shared")
            add("LoadStatic", *place("load"), local[8], shared, method)
        if rng.random() < 0.03:
            self._array(i, method, local, place)
        if rng.random() < 0.04:
            add("Throw", *place("throw"), local[0], method)
        if rng.random() < 0.7:
            caught = THROWABLE if rng.random() < 0.95 else self._class[made]
            add("Handler", method, caught, local[6])
        returned = local[rng.choice((4, 4, 5, 7, 8))]
        add("Return", *place("return"), returned, method)

    def _array(
        self, i: int, method: str, local: list[str], place: Callable[[str], tuple[str, str]]
    ) -> None:
        """Add an array, one store and one load."""
        array = f"{self._class[i]}[]"
        instruction, index = place("assign")
        heap = f"{method}/new {array}/{index}"
        self._facts.add("HeapType", heap, array)
        self._facts.add("AssignHeap", instruction, index, heap, local[8], method)
        self._facts.add("StoreArray", *place("store"), local[4], local[8], method)
        self._facts.add("LoadArray", *place("load"), local[7], local[8], method)
