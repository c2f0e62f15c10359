"""What a sink has written, remembered in the state folder, so that each epoch is written once."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidelog.io.atomic import file_name, read_json, replace_text
from tidelog.spark.declared import Sink


class SinkState:
    """What a sink has written, in a file of the state folder. It holds no address and no secret."""

    def __init__(
        self, folder: Path, name: str, spec: Sink, program: str, *, migrates: bool = False
    ) -> None:
        """Read it; `migrates` says that another program is no reason to begin again."""
        self._file = folder / f"{file_name(name)}.json"
        self._program = _hash(program.strip())
        options = [spec.options.get(key, "") for key in ("url", "dbtable", "topic")]
        where = [spec.path, spec.table, *options, spec.options.get("kafka.bootstrap.servers", "")]
        self._is = {
            "view": spec.view,
            "what": spec.what,
            "format": spec.format,
            "where": _hash(json.dumps(where)),
        }
        known: Mapping[str, Any] = read_json(self._file) or {}
        # An earlier version recorded the address itself.
        plain = spec.path or " ".join(options[:2])
        if known.get("where") == plain:
            known = {**known, "where": self._is["where"]}
        same = all(known.get(key) == value for key, value in self._is.items())
        if not same:
            known = {}
        self.is_begun = bool(known)
        """Whether anything is recorded, if only that nothing is written yet."""
        self.epoch: int | None = known.get("epoch")
        self.reached: int | None = known.get("reached")
        """The epoch of the target when `epoch` was recorded; it may not have changed since."""
        self.first: int | None = known.get("first")
        """The epoch whose write was begun, when nothing was written yet."""
        self.token: str = known.get("token") or secrets.token_hex(8)
        is_other = self.epoch is not None and known.get("program") != self._program
        self.other_program = is_other and not migrates

    def renew(self) -> None:
        """Forget what was written: the next write is the first one of a new target."""
        self.epoch = self.reached = self.first = None
        self.token, self.other_program = secrets.token_hex(8), False

    def begin(self, first: int | None = None) -> None:
        """Record the token, and the first epoch, before anything is written."""
        self.first = first
        self._write()

    def wrote(self, epoch: int, reached: int | None = None) -> None:
        """Record that all epochs up to this one are written."""
        self.epoch, self.reached, self.other_program = epoch, reached, False
        self._write()

    def _write(self) -> None:
        known = {
            **self._is,
            "program": self._program,
            "epoch": self.epoch,
            "reached": self.reached,
            "first": self.first,
            "token": self.token,
        }
        replace_text(self._file, json.dumps(known) + "\n")


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
