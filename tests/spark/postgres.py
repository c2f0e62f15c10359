"""A PostgreSQL server for a test: Debian's binaries, a folder and a port of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# The package starts a server of its own, unless it is told not to.
_INSTALL = """
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -yq --no-install-recommends postgresql-common
mkdir -p /etc/postgresql-common
echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf
apt-get install -yq --no-install-recommends postgresql
"""


def binaries() -> Path:
    """Return the folder with `postgres` and `initdb`; install Debian's package if there is none."""
    found = _find()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        done = subprocess.run(["sh", "-c", _INSTALL], capture_output=True, text=True, check=False)
        found = _find()
        if found is None:
            raise RuntimeError(
                f"Debian's package `postgresql` could not be installed:\n{done.stderr[-2000:]}"
            )
    if found is None:
        raise RuntimeError(
            "this test needs a PostgreSQL server: no `initdb` below /usr/lib/postgresql, and only"
            " root can install it\n  help: apt-get install postgresql"
        )
    return found


def _find() -> Path | None:
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = sorted(versions, key=lambda path: int(path.parts[-3]))
    return newest[-1].parent if newest else None


class Server:
    """A server that runs, and takes statements."""

    def __init__(self, tools: Path, port: int) -> None:
        self._tools, self._port = tools, port
        self.url = f"jdbc:postgresql://127.0.0.1:{port}/postgres?user=tide"

    def run(self, statements: str) -> list[list[str]]:
        """Run statements; return the rows of the last one, as texts."""
        done = subprocess.run(
            [self._tools / "psql", "-h", "127.0.0.1", "-p", str(self._port), "-U", "tide",
             "-d", "postgres", "-qAtX", "-v", "ON_ERROR_STOP=1", "-c", statements],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [line.split("|") for line in done.stdout.splitlines()]


@contextmanager
def server() -> Iterator[Server]:
    """Give a server with an empty database, and end it afterwards."""
    tools = binaries()
    # A server refuses to be root; the package has made a user for it.
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    folder = Path(tempfile.mkdtemp(prefix="tidelog-postgres-"))
    process = None
    try:
        shutil.chown(folder, user)
        data = folder / "data"
        made = subprocess.run(
            [tools / "initdb", "-D", data, "-U", "tide", "-A", "trust", "-E", "UTF8", "--no-sync"],
            user=user, cwd=folder, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        with open(folder / "log", "w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [tools / "postgres", "-D", data, "-p", str(port),
                 "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
                 "-c", "fsync=off"],
                user=user, cwd=folder, stdout=log, stderr=log,
            )  # fmt: skip
        for _ in range(300):
            command = [tools / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
            if subprocess.run(command, check=False).returncode == 0:
                break
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.2)
        else:
            raise AssertionError((folder / "log").read_text())
        yield Server(tools, port)
    finally:
        if process is not None:
            process.send_signal(signal.SIGINT)  # ends sessions, and then the server
            process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)
