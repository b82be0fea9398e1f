"""``python -m wallaroo.ingress.feeder CONFIG.json``: the process of one generator or file source.

Where it runs: feeder.  It appends runs of frames with where to continue, publishes each, and waits
while the backlog is at its bound.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wallaroo.errors import CheckpointError, PeerError, UserCodeError
from wallaroo.ingress.config import BACKLOG_BYTES_MAX
from wallaroo.ingress.feeds import Feed, feed_of
from wallaroo.processes.child import EXIT_PEER, EXIT_USER, Parent, fail, say
from wallaroo.sources.interface import SourceConfig
from wallaroo.spool import SpoolFullError, SpoolWriter

WAIT_S = 0.005  # between looks at the backlog
GRACE_S = 2.0  # for user code to return after the parent is gone
TIDY_S = 1.0


@dataclass(frozen=True, slots=True)
class FeederConfig:
    """What a feeder process is told."""

    name: str
    source: str  # pickled, base64
    folder: str
    sys_path: tuple[str, ...] = ()
    is_durable: bool = False
    backlog_bytes_max: int = BACKLOG_BYTES_MAX


def write_feeder_config(config: FeederConfig, path: Path) -> None:
    """Write a configuration for ``python -m wallaroo.ingress.feeder``."""
    path.write_text(json.dumps(asdict(config), indent=1), encoding="utf-8")


class Feeder:
    """Moves a feed into a spool, no faster than it is consumed."""

    def __init__(self, config: FeederConfig, source: SourceConfig, parent: Parent):
        self._parent = parent
        self._backlog_bytes_max = config.backlog_bytes_max
        self._writer = SpoolWriter(Path(config.folder), is_durable=config.is_durable)
        self._feed: Feed = feed_of(source, self._writer.last_resume)
        self._tidied_at = time.monotonic()

    def run(self) -> None:
        """Feed until the feed ends or the parent is gone; user and peer errors stand in the head,
        too.
        """
        is_ended, error = False, ""
        try:
            while not self._parent.look():
                run = self._feed.next_run()
                if run is None:
                    is_ended = True
                    break
                self._append(run.frames, run.events, run.resume)
                self._wait()
        except (UserCodeError, PeerError) as problem:
            error = str(problem)
            raise
        finally:
            self._writer.publish(is_ended=is_ended, error=error)
            self._writer.close()

    def _append(self, frames: bytes, events: int, resume: bytes) -> None:
        while True:
            try:
                self._writer.append(frames, events, time.time_ns(), resume=resume)
                self._writer.publish()
                return
            except SpoolFullError as problem:
                self._writer.publish(error=str(problem))
                if self._parent.look(0.25):
                    raise

    def _wait(self) -> None:
        if time.monotonic() - self._tidied_at > TIDY_S:
            self._tidy()
        if self._writer.backlog_bytes() <= self._backlog_bytes_max:
            return
        self._writer.publish(is_paused=True)
        while self._writer.backlog_bytes() > self._backlog_bytes_max and not self._parent.look(
            WAIT_S
        ):
            if time.monotonic() - self._tidied_at > TIDY_S:
                self._tidy()
        self._writer.publish()

    def _tidy(self) -> None:
        self._writer.remove_consumed()
        self._tidied_at = time.monotonic()


def _leave_with_parent(parent: Parent) -> None:
    """Leave even if user code does not return: what is published is safe, what is not will be made
    again.
    """
    while not parent.look(1.0):
        pass
    time.sleep(GRACE_S)
    os._exit(0)


def _load(path: str) -> tuple[FeederConfig, SourceConfig]:
    content: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    config = FeederConfig(**{**content, "sys_path": tuple(content["sys_path"])})
    sys.path[:0] = [entry for entry in config.sys_path if entry not in sys.path]
    try:
        return config, pickle.loads(base64.b64decode(config.source))
    except Exception as problem:  # noqa: BLE001  # importing the user's module runs the user's code
        raise UserCodeError(
            config.name, path, "none yet", f"{type(problem).__name__}: {problem}"
        ) from None


def main(path: str) -> int:
    """Feed until there is nothing more or told to stop; return the exit code."""
    parent = Parent()
    try:
        config, source = _load(path)
        feeder = Feeder(config, source, parent)
        threading.Thread(target=_leave_with_parent, args=(parent,), daemon=True).start()
        say("READY", {})
        feeder.run()
    except UserCodeError as problem:
        fail("user", *problem.args)
        return EXIT_USER
    except CheckpointError as problem:
        fail("checkpoint", str(problem))
        return EXIT_PEER
    except (PeerError, OSError) as problem:
        fail("peer", str(problem))
        return EXIT_PEER
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
