"""Threads for large joins and sorts.

Kernels that read and write large arrays run without the GIL (kernel/compiling.py), so threads of
one process use several cores. Work is cut into parts that have nothing in common but what they
read; results are put together in the order of the parts. So nothing depends on the number of
threads, or on which of them is first.

When not to use it: a part should take much longer than a millisecond.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from tidelog.errors import UsageError

Item = TypeVar("Item")
Result = TypeVar("Result")

VARIABLE = "TIDELOG_THREADS"


class Workers:
    """The calling thread and others, which are started when they are first needed."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self.lock = threading.Lock()
        """For what parts do to objects that they share."""
        self._pool: ThreadPoolExecutor | None = None
        self._process = 0

    def map(
        self, run: Callable[[Item, Callable[[], bool]], Result], items: Sequence[Item]
    ) -> list[Result]:
        """Return `run(item, is_stopped)` for each item, in order.

        If some fail, the error is that of the first of them, as if they ran one after the other.
        `is_stopped` says whether an earlier item has failed already, so that this one can end.
        """
        failed = [len(items)]

        def attempt(number: int) -> Result:
            try:
                return run(items[number], lambda: failed[0] < number)
            except BaseException:
                with self.lock:
                    failed[0] = min(failed[0], number)
                raise

        if self.count == 1 or len(items) < 2:
            return [attempt(number) for number in range(len(items))]
        waiting = iter(range(len(items)))
        results: dict[int, Result] = {}
        errors: list[tuple[int, BaseException]] = []

        def work() -> None:
            while True:
                with self.lock:
                    number = next(waiting, None)
                if number is None or failed[0] < number:
                    return
                try:
                    results[number] = attempt(number)
                except BaseException as error:
                    errors.append((number, error))
                    return

        submit = self._threads().submit
        others = [submit(work) for _ in range(min(self.count, len(items)) - 1)]
        with ALONE.active():  # a part is not cut again
            work()
        for other in others:
            other.result()
        if errors:
            raise min(errors, key=lambda pair: pair[0])[1]
        return [results[number] for number in range(len(items))]

    def ahead(
        self, run: Callable[[Item], Result], items: Sequence[Item], window: int
    ) -> Generator[Result, None, None]:
        """Yield `run(item)` for each item, in order.

        Other threads run ahead: when a result is asked for, the caller is done with the one before,
        and at most `window` items from the one asked for on have been started.
        """
        if self.count == 1 or len(items) < 2:
            yield from map(run, items)
            return
        submit = self._threads().submit
        waiting = deque(submit(run, item) for item in items[:window])
        try:
            for number in range(len(items)):
                yield waiting.popleft().result()
                if number + window < len(items):
                    waiting.append(submit(run, items[number + window]))
        finally:
            for future in waiting:
                future.cancel()
            wait(waiting)

    def slices(self, size: int, run: Callable[[int, int], object]) -> None:
        """Call `run(start, stop)` for slices that cover `size` rows."""
        cuts = [size * number // self.count for number in range(self.count + 1)]
        self.map(lambda cut, _: run(*cut), list(itertools.pairwise(cuts)))

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let the store use the workers in this thread, within a block."""
        before = active_workers()
        _active.workers = self
        try:
            yield
        finally:
            _active.workers = before

    def _threads(self) -> ThreadPoolExecutor:
        """Return the other threads. A forked process has none of those of its parent."""
        if self._pool is None or self._process != os.getpid():
            self._pool = ThreadPoolExecutor(self.count - 1, "tidelog-worker")
            self._process = os.getpid()
        return self._pool


ALONE = Workers()
"""The calling thread alone."""
_active = threading.local()


def active_workers() -> Workers:
    """Return the workers that the store uses in this thread."""
    found: Workers = getattr(_active, "workers", ALONE)
    return found


def threads_wanted(threads: int | None) -> int:
    """Return the number of threads for an argument; None: what the environment says, or all cores.

    0 stands for all cores that this process may use.
    """
    shown = "`threads`"
    if threads is None:
        text = os.environ.get(VARIABLE, "").strip()
        if not text:
            return _cores()
        shown = VARIABLE
        if not text.isascii() or not text.isdigit():
            raise UsageError(f"{VARIABLE} is a number of threads, not {text!r}")
        threads = int(text)
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 0:
        raise UsageError(f"{shown} is a number of threads, or 0 for all cores, not {threads!r}")
    return threads or _cores()


def _cores() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
