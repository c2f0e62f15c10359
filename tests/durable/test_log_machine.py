"""The log and the manifest against a model: a list of payloads, of one part or two."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.faults.faulty import FailingFiles
from tidelog.durable import manifest as manifests
from tidelog.durable.files import Files
from tidelog.durable.framing import frame
from tidelog.durable.log import Log
from tidelog.durable.log_reading import HEADER, read_published, read_records
from tidelog.durable.manifest import Manifest, SnapshotRef
from tidelog.errors import StateError

IDENTITY = "0123456789abcdef" * 2
NEVER = 10**9
PAYLOADS = st.binary(max_size=80)


class LogMachine(RuleBasedStateMachine):
    """Appends, fails, tears, rotates, forgets and opens again."""

    @initialize()
    def start(self) -> None:
        self._folder = Path(tempfile.mkdtemp())
        self._files = FailingFiles(self._folder, NEVER, "torn")
        self._log = Log.create(self._files, "log-1", 1, IDENTITY)
        ref = SnapshotRef("none", 0, 0, 0, 0)
        self._manifest = Manifest(IDENTITY, "", "", ref, (self._log.segment,))
        manifests.write(self._files, self._manifest, None)
        self._model: list[tuple[bytes, ...]] = []
        self._oldest = 0
        self._names = 1

    def teardown(self) -> None:
        if hasattr(self, "_log"):
            self._log.close()
            shutil.rmtree(self._folder)

    @rule(payload=st.binary(max_size=80), sync=st.booleans())
    def append(self, payload: bytes, sync: bool) -> None:
        self._log.append(self._log.epoch + 1, payload, 0.0, sync=sync)
        self._model.append((payload,))
        self._log.publish()

    @rule(given=PAYLOADS, view=PAYLOADS)
    def append_in_parts(self, given: bytes, view: bytes) -> None:
        self._append_in_parts(given, view)
        self._log.publish()

    @rule(given=PAYLOADS)
    def undo(self, given: bytes) -> None:
        """An epoch whose views cannot be computed leaves no trace."""
        self._log.begin(self._log.epoch + 1, given)
        self._log.undo()

    @rule(
        given=PAYLOADS,
        view=PAYLOADS,
        call=st.integers(1, 4),
        fault=st.sampled_from(["EIO", "torn"]),
    )
    def fail_in_parts(self, given: bytes, view: bytes, call: int, fault: str) -> None:
        """A write, a sync that is begun, or the end of it fails: the log is as it was."""
        self._files._fails, self._files._fault = self._files.calls + call, fault
        try:
            self._log.begin(self._log.epoch + 1, given)
            self._log.finish(view, 0.0)
            raise AssertionError("it did not fail")
        except StateError:
            pass
        finally:
            self._files._fails = NEVER
        assert not self._log.broken

    @rule(given=PAYLOADS, view=PAYLOADS, part=st.floats(0, 0.999), finish=st.booleans())
    def tear_in_parts(self, given: bytes, view: bytes, part: float, finish: bool) -> None:
        """The machine stops while an epoch is written: its view part is made again, or it goes."""
        path, before = self._folder / self._log.segment.name, self._log.end
        self._append_in_parts(given, view)
        end, whole = self._log.end, path.read_bytes()
        middle = before + len(frame(0, given, 0))
        self._log.close()
        written = before + int(part * (end - before))
        path.write_bytes(whole[:written] + bytes(len(whole) - written))
        has_given = not any(whole[written:middle])
        if not has_given or (not finish and any(whole[written:end])):
            self._model.pop()
        self._reopen(view if finish else None)
        assert self._log.epoch == len(self._model)

    @rule(given=PAYLOADS, view=PAYLOADS, part=st.floats(0, 0.999))
    def lose_a_view_part(self, given: bytes, view: bytes, part: float) -> None:
        """The power goes when an epoch has just committed: nothing else can be missing."""
        path = self._folder / self._log.segment.name
        self._append_in_parts(given, view)
        self._log.publish()
        start, end = self._log._durable, self._log.end
        assert end - start == len(frame(0, view, 0))
        data = path.read_bytes()
        self._log.close()
        written = start + int(part * (end - start))
        path.write_bytes(data[:written] + bytes(end - written))
        self._reopen(view)
        assert self._log.epoch == len(self._model)

    def _append_in_parts(self, given: bytes, view: bytes) -> None:
        self._log.begin(self._log.epoch + 1, given)
        self._log.finish(view, 0.0)
        self._model.append((given, view))

    @rule()
    def sync_all(self) -> None:
        self._log.sync()
        self._log.publish()

    @rule()
    def sync(self) -> None:
        self._log.sync_to(self._log.epoch)
        self._log.publish()

    @rule(
        payload=st.binary(max_size=80),
        call=st.integers(1, 2),
        fault=st.sampled_from(["EIO", "torn"]),
    )
    def fail(self, payload: bytes, call: int, fault: str) -> None:
        """A write, or the sync behind it, fails: the log is as it was."""
        self._files._fails, self._files._fault = self._files.calls + call, fault
        try:
            self._log.append(self._log.epoch + 1, payload, 0.0, sync=True)
            raise AssertionError("it did not fail")
        except StateError:
            pass
        finally:
            self._files._fails = NEVER

    @rule(payload=st.binary(max_size=80), part=st.floats(0, 0.999), zeros=st.booleans())
    def tear(self, payload: bytes, part: float, zeros: bool) -> None:
        """The machine stops while a record is written; then the log is opened again.

        Behind the part that was written is the end of the file, or what there was: zeros.
        """
        path = self._folder / self._log.segment.name
        before = self._log.end
        self._log.append(self._log.epoch + 1, payload, 0.0, sync=False)
        end, whole = self._log.end, path.read_bytes()
        assert not any(whole[end:]), "there is something behind the last record"
        self._log.close()
        written = before + int(part * (end - before))
        path.write_bytes(whole[:written] + bytes(zeros * (len(whole) - written)))
        self._reopen()
        if zeros and not any(whole[written:end]):  # nothing that was written is missing
            self._model.append((payload,))
        assert self._log.epoch == len(self._model)

    @rule()
    def reopen(self) -> None:
        self._log.close()
        self._reopen()

    @rule()
    def rotate(self) -> None:
        if self._log.end == HEADER:
            return
        self._log.sync()
        self._names += 1
        log = Log.create(self._files, f"log-{self._names}", self._log.epoch + 1, IDENTITY)
        self._switch((*self._manifest.segments[:-1], self._log.closed_segment(), log.segment))
        self._log.close()
        self._log = log
        self._log.publish()

    @precondition(lambda self: len(self._manifest.segments) > 1)
    @rule()
    def forget(self) -> None:
        oldest, *rest = self._manifest.segments
        self._switch(tuple(rest))
        self._files.remove(oldest.name)
        self._oldest = oldest.last

    @rule(call=st.integers(1, 5))
    def fail_to_switch(self, call: int) -> None:
        """The manifest stays what it was, whichever call fails."""
        self._files._fails = self._files.calls + call
        try:
            manifests.write(self._files, self._manifest.with_segments(()), self._manifest)
            raise AssertionError("it did not fail")
        except StateError:
            pass
        finally:
            self._files._fails = NEVER

    @invariant()
    def holds_what_was_appended(self) -> None:
        if not hasattr(self, "_log"):
            return
        files = Files(self._folder)
        assert manifests.read(files) == self._manifest
        published = read_published(files, IDENTITY)
        for committed_only in (False, True):
            found = list(
                read_records(
                    files,
                    IDENTITY,
                    self._manifest.segments,
                    self._oldest,
                    published,
                    committed_only=committed_only,
                )
            )
            payloads = [tuple(bytes(part) for part in record.payloads) for record in found]
            assert payloads == self._model[self._oldest :]
            assert [r.epoch for r in found] == list(range(self._oldest + 1, len(self._model) + 1))

    def _switch(self, segments: tuple[manifests.Segment, ...]) -> None:
        new = self._manifest.with_segments(segments)
        manifests.write(self._files, new, self._manifest)
        self._manifest = new

    def _reopen(self, view: bytes | None = None) -> None:
        """Open the log again; an epoch without a view part gets this one, or is taken back."""
        segment = self._manifest.segments[-1]
        published = read_published(self._files, IDENTITY)
        since = segment.first - 1
        records = list(
            read_records(self._files, IDENTITY, [segment], since, published, unfinished=True)
        )
        last = records[-1] if records else None
        self._log = Log.resume(self._files, IDENTITY, segment, last)
        if last is not None and not last.is_complete:
            if view is None:
                self._log.undo()
            else:
                self._log.finish(view, 0.0)
        self._log.publish()


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestLog = LogMachine.TestCase
