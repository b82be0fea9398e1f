"""``python -m wallaroo.ingress.feeder``: the process of one source's feed.

Where it runs: feeder.  It appends runs of frames with the position to resume from, publishes each,
and waits while the backlog is at its bound.
"""

from __future__ import annotations

import base64
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wallaroo.errors import CheckpointError, PeerError, UserCodeError
from wallaroo.ingress.config import BACKLOG_BYTES_MAX
from wallaroo.ingress.listener import SILENT_S
from wallaroo.network.replica import Replica
from wallaroo.processes.child import EXIT_PEER, EXIT_USER, Parent, configuration, fail, say
from wallaroo.processes.open_files import allow_many_files
from wallaroo.sources.feed import Feed, FrameRun, StagingFeed
from wallaroo.sources.interface import SourceConfig
from wallaroo.spool import SpoolFullError
from wallaroo.spool.tail import CommitWaits
from wallaroo.spool.writer import SpoolWriter

WAIT_S = 0.005  # between polls of the backlog
LOOK_S = 0.02  # between polls of the tail while an answer waits for a commit
# without an event, until a source that cannot say what it holds counts as fully read
QUIET_S = 1.0
FULL_RETRY_S = 0.25
GRACE_S = 2.0  # for user code to return after the parent has ended
REMOVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class FeederConfig:
    """The source of a feeder process, and the spool to fill."""

    name: str
    source: str  # pickled, base64
    folder: str
    sys_path: tuple[str, ...] = ()
    is_durable: bool = False
    backlog_bytes_max: int = BACKLOG_BYTES_MAX
    checkpoint: str = ""  # id of the checkpoint that the spool belongs to
    until_now: bool = False  # end once everything that the source held at the beginning is read
    awaits_commits: bool = False  # the other system is answered once its events are committed
    replica: Replica | None = None  # keeps the spool's copy


class Feeder:
    """The loop that fills a spool, no faster than it is consumed."""

    def __init__(self, config: FeederConfig, source: SourceConfig, parent: Parent):
        self._parent = parent
        self._backlog_bytes_max = config.backlog_bytes_max
        self._writer = SpoolWriter(
            Path(config.folder),
            is_durable=config.is_durable,
            checkpoint=config.checkpoint,
            replica=config.replica,
        )
        self._feed: Feed = source.open_feed(self._writer.last_resume)
        self._waits: CommitWaits | None = None
        if isinstance(self._feed, StagingFeed):
            if config.replica is not None:
                raise CheckpointError(
                    f"source '{config.name}' keeps its progress in files of Spark's, of which a "
                    f"replica has no copy. Choose --durability disk, on a folder that both hosts "
                    f"see, or another source."
                )
            self._feed.stage_in(Path(config.folder) / "feed", config.is_durable)
        elif config.awaits_commits:
            self._waits = CommitWaits(Path(config.folder))
        self._removed_at = time.monotonic()
        self._problem = ""  # why no events arrive
        self._skipped = 0  # events that were lost before they were read
        self._empty_ns = 0  # when the feed was last polled and had nothing more
        self._published_at = 0.0
        self._until_now = config.until_now
        self._quiet_since: float | None = None  # monotonic; None: there was something

    def run(self) -> None:
        """Feed until the feed or the parent ends; errors are in the head, too."""
        is_ended = False
        try:
            while not self._parent.look():
                asked_ns = time.time_ns()
                run = self._feed.next_run()
                if run is None:
                    is_ended = True
                    break
                self._skipped += run.skipped
                if run.events:
                    self._append(run.frames, run.events, run.resume)
                    self._answer(run.stored)
                if self._until_now and self._is_read_to_now(run):
                    is_ended = True
                    break
                self._note_silence(run, asked_ns)
                self._wait()
                if run.pause_s:
                    self._rest(run.pause_s)
        except (UserCodeError, PeerError) as error:
            self._problem = str(error)
            raise
        finally:
            self._publish(is_ended=is_ended)
            self._writer.close()

    def _answer(self, stored: Callable[[], None] | None) -> None:
        """Report to the other system that events are stored or, later, committed."""
        if stored is None:
            return
        if self._waits is None:
            stored()
        else:
            self._waits.add(self._writer.position, stored)

    def _is_read_to_now(self, run: FrameRun) -> bool:
        """Return whether everything that the source held when the run began was read."""
        if run.is_caught_up is not None:
            self._quiet_since = None
            return run.is_caught_up
        if run.events or run.problem or run.is_away:
            self._quiet_since = None
            return False
        now = time.monotonic()
        if self._quiet_since is None:
            self._quiet_since = now
        return now - self._quiet_since >= QUIET_S

    def _note_silence(self, run: FrameRun, asked_ns: int) -> None:
        """Report to readers at intervals that nothing arrived, or could arrive."""
        is_changed = run.problem != self._problem
        self._problem = run.problem
        if run.problem or run.is_away:
            self._empty_ns = 0
        elif not run.events:
            self._empty_ns = asked_ns
        else:
            return
        if is_changed or time.monotonic() - self._published_at >= SILENT_S:
            self._until_stored(self._publish)

    def _publish(self, *, is_ended: bool = False, is_paused: bool = False) -> None:
        self._writer.publish(
            is_ended=is_ended,
            is_paused=is_paused,
            error=self._problem,
            as_of_ns=self._empty_ns,
            skipped=self._skipped,
        )
        self._published_at = time.monotonic()

    def _append(self, frames: bytes, events: int, resume: bytes) -> None:
        self._until_stored(
            lambda: self._writer.append(frames, events, time.time_ns(), resume=resume)
        )
        self._problem = ""
        self._until_stored(self._publish)

    def _until_stored(self, attempt: Callable[[], object]) -> None:
        while True:
            try:
                attempt()
            except SpoolFullError as error:
                self._writer.report(str(error), skipped=self._skipped)
                self._writer.remove_consumed()
                if self._parent.look(FULL_RETRY_S):
                    raise
            else:
                return

    def _wait(self) -> None:
        if self._waits:
            self._waits.look()
        if time.monotonic() - self._removed_at > REMOVAL_S:
            self._remove_consumed()
        if self._writer.backlog_bytes() <= self._backlog_bytes_max:
            return
        self._publish(is_paused=True)
        while self._writer.backlog_bytes() > self._backlog_bytes_max and not self._parent.look(
            WAIT_S
        ):
            if self._waits:
                self._waits.look()
            if time.monotonic() - self._removed_at > REMOVAL_S:
                self._remove_consumed()
        self._publish()

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._parent.look(
            min(left, LOOK_S if self._waits else REMOVAL_S)
        ):
            if self._waits:
                self._waits.look()
            self._remove_consumed()

    def _remove_consumed(self) -> None:
        self._writer.remove_consumed()
        self._removed_at = time.monotonic()


def _leave_with_parent(parent: Parent) -> None:
    """Exit even if user code does not return; unpublished events are produced again."""
    while not parent.look(1.0):
        pass
    time.sleep(GRACE_S)
    os._exit(0)


def _load() -> tuple[FeederConfig, SourceConfig]:
    config = configuration(FeederConfig)
    sys.path[:0] = [entry for entry in config.sys_path if entry not in sys.path]
    try:
        return config, pickle.loads(base64.b64decode(config.source))
    except Exception as error:  # noqa: BLE001  # importing the user's module runs the user's code
        raise UserCodeError(
            config.name, "", "none yet", f"{type(error).__name__}: {error}"
        ) from None


def main() -> int:
    """Feed until the feed ends or a stop is requested; return the exit code."""
    parent = Parent.of_process()
    allow_many_files()
    try:
        config, source = _load()
        feeder = Feeder(config, source, parent)
        threading.Thread(target=_leave_with_parent, args=(parent,), daemon=True).start()
        say("READY", {})
        feeder.run()
    except UserCodeError as error:
        fail("user", *error.args)
        return EXIT_USER
    except CheckpointError as error:
        fail("checkpoint", str(error))
        return EXIT_PEER
    except (PeerError, OSError) as error:
        fail("peer", str(error))
        return EXIT_PEER
    return 0


if __name__ == "__main__":
    sys.exit(main())
