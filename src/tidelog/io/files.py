"""Bytes of a file, and the text they are.

Gzip is recognised by its first two bytes, whatever the file is called; no UTF-8 text begins with
them. Text is UTF-8, with or without a byte order mark.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from tidelog.errors import FactsError

_GZIP_MAGIC = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"


def read_bytes(path: Path, kind: str) -> bytes:
    """Return what is in the `kind` of file at `path`, unpacked, without a byte order mark."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise FactsError(
            str(path), None, None, f"no such {kind} file", _help_for_missing(path)
        ) from None
    except OSError as error:
        reason = f"cannot read the {kind} file: {error.strerror}"
        raise FactsError(str(path), None, None, reason) from None
    if data.startswith(_GZIP_MAGIC):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            reason = f"the gzip file is damaged: {error}"
            raise FactsError(str(path), None, None, reason) from None
    return data.removeprefix(BOM)


def decode(data: bytes, file: str) -> str:
    """Return `data` as text; raise FactsError at the first byte that is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        begin = data.rfind(b"\n", 0, error.start) + 1
        line = data.count(b"\n", 0, error.start) + 1
        column = len(data[begin : error.start].decode("utf-8")) + 1
        reason = f"byte 0x{data[error.start]:02x} is not UTF-8: {error.reason}"
        hint = "convert the file, for example with `iconv -f latin1 -t utf-8`"
        raise FactsError(file, line, column, reason, hint) from None


def _help_for_missing(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no folder `{path.parent}`; name the folder of the facts with -F"
    return f"create `{path.name}` in `{path.parent}`, empty if there are no facts"
