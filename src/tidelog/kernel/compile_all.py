"""Compiling all kernels before the first one is called, on all cores.

Numba compiles a kernel when it is first called and keeps the result in a cache on disk. In this way
the first epochs of a fresh installation took 47 s and 27 s. Here several processes compile
the kernels into the cache (kernel/compile_worker.py), and this process loads them from there. Each
process takes a block of kernels that share helpers (kernel/signatures.py), then another; when no
block is left it takes kernels from the end of the fullest one.

A file in the cache says that all kernels are compiled, for this processor and these sources. Its
name has a digest of the sources of all kernels: Numba itself looks only at the file in which a
kernel is defined, and would load a kernel whose helper in another file has changed.
"""

from __future__ import annotations

import compileall
import fcntl
import hashlib
import logging
import os
import selectors
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tidelog.kernel.signatures import blocks, declared, find_kernel

ABOUT_SECONDS = 30
"""How long compiling takes on two cores, for messages."""

_WITHOUT_KERNELS = {"compile_all.py", "compile_worker.py"}
_logger = logging.getLogger(__name__)
_known: set[Path] = set()  # folders whose kernels are known to be compiled


def cache_folder() -> Path:
    """Return the folder in which Numba keeps what it compiled.

    That is NUMBA_CACHE_DIR if it is set. Otherwise it is `__pycache__` beside the source or, if
    that is read-only, a folder of the user.
    """
    return Path(find_kernel("join.join").stats.cache_path)


def is_compiled() -> bool:
    """Return whether all kernels are in the cache, for this processor and these sources."""
    from numba import config

    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return True
    folder = cache_folder()
    if folder not in _known and _done_file(folder).exists():
        _known.add(folder)
    return folder in _known


def ensure_compiled() -> None:
    """Compile all kernels if this has not been done; report it only to the logger."""
    if not is_compiled():
        _logger.info("compiling the kernels, once; `tidelog warm` does this ahead of time")
        compile_kernels()


def cores() -> int:
    """Return how many processes compile kernels."""
    return min(len(os.sched_getaffinity(0)), len(blocks()))


def compile_kernels(done: Callable[[str], object] | None = None) -> bool:
    """Compile all kernels, and call `done` with the name of each; return whether this succeeded.

    If it did not, kernels are compiled when they are first called. One process at a time compiles
    into a folder; another one waits, and then finds everything done.
    """
    if not sys.executable or getattr(sys, "frozen", False):
        return False  # there is no Python to start
    folder = cache_folder()
    with _only_one(folder):
        if is_compiled():
            return True
        _remove_outdated(folder)
        try:
            left = KernelQueue(blocks())
            _run_workers(left, done or (lambda _: None))
        except OSError as error:
            _logger.warning("cannot compile the kernels ahead of time: %s", error)
            return False
        if left.count:
            _logger.warning("a process that compiles kernels has ended too early")
            return False
        compile_modules()
        with suppress(OSError):
            _done_file(folder).touch()
        _known.add(folder)
    return True


def compile_modules() -> None:
    """Write the bytecode of all modules, where it is missing.

    Python does that when it imports a module, but not with PYTHONDONTWRITEBYTECODE. Then each run
    would compile hundreds of modules, which takes a quarter of a second.
    """
    compileall.compile_dir(Path(__file__).parents[1], quiet=2)


class KernelQueue:
    """The kernels that no worker has begun to compile."""

    def __init__(self, names: Iterable[Iterable[str]]) -> None:
        self._blocks = [list(block) for block in names]
        self._taken: dict[int, list[str]] = {}
        self._untouched = list(self._blocks)
        self.count = sum(map(len, self._blocks))
        """How many are not compiled yet."""

    def next_for(self, worker: int) -> str | None:
        """Return the next kernel of the worker's block or a new one, or the last of another."""
        block = self._taken.get(worker, [])
        if not block and self._untouched:
            block = self._taken[worker] = self._untouched.pop(0)
        if block:
            return block.pop(0)
        fullest = max(self._blocks, key=len)
        return fullest.pop() if fullest else None


def _run_workers(work: KernelQueue, done: Callable[[str], object]) -> None:
    """Run worker processes until all work is done, or all of them have ended."""
    workers: list[subprocess.Popen[str]] = []
    with selectors.DefaultSelector() as answers:
        try:
            for number in range(cores()):
                worker = _start_worker()
                workers.append(worker)
                assert worker.stdout is not None
                answers.register(worker.stdout, selectors.EVENT_READ, number)
                _ask(worker, work.next_for(number))
            while answers.get_map():
                for key, _ in answers.select():
                    answer: IO[str] = key.fileobj  # type: ignore[assignment]
                    name = answer.readline().strip()
                    if not name:
                        answers.unregister(answer)  # the process has ended
                        continue
                    work.count -= 1
                    done(name)
                    _ask(workers[key.data], work.next_for(key.data))
        finally:
            for worker in workers:
                worker.terminate()
                worker.wait()
                for pipe in (worker.stdin, worker.stdout):
                    with suppress(OSError):
                        pipe and pipe.close()


def _start_worker() -> subprocess.Popen[str]:
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "tidelog.kernel.compile_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        text=True,
    )


def _ask(worker: subprocess.Popen[str], kernel: str | None) -> None:
    """Send a kernel to a worker; None ends the worker."""
    assert worker.stdin is not None
    with suppress(BrokenPipeError):
        if kernel is None:
            worker.stdin.close()
        else:
            worker.stdin.write(f"{kernel}\n")
            worker.stdin.flush()


def _done_file(folder: Path) -> Path:
    """Return the file that exists when all kernels are compiled."""
    return folder / f"kernels-{_machine()}-{_sources()}.compiled"


def _sources() -> str:
    """Return a digest of the names, times and sizes of the sources, which Numba compares, too."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        if file.name not in _WITHOUT_KERNELS:
            stat = file.stat()
            digest.update(f"{file.name} {stat.st_mtime_ns} {stat.st_size}\n".encode())
    return digest.hexdigest()[:16]


def _machine() -> str:
    """Return a digest of what compiled code depends on besides its source."""
    import numba
    from numba.core.registry import cpu_target

    codegen = cpu_target.target_context.codegen()
    parts = (sys.version, numba.__version__, codegen.magic_tuple())
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _remove_outdated(folder: Path) -> None:
    """Remove the kernels that were compiled from other sources, for any machine."""
    outdated = [
        file
        for file in folder.glob("kernels-*.compiled")
        if not file.name.endswith(f"-{_sources()}.compiled")
    ]
    if outdated:
        indexes = [file for name in declared() for file in folder.glob(f"{name}-*.nbi")]
        for file in [*indexes, *outdated]:
            file.unlink(missing_ok=True)


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Wait while another process compiles into the folder. Does not wait if it cannot be locked."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = (folder / "kernels.lock").open("w")
    except OSError:
        yield
        return
    with lock:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
