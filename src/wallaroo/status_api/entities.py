"""State entities: the keys of every state step, and how many there are, read from the checkpoint of
a running application.

Where it runs: ``EntityReader`` in the driver; the rest in a process of its own, so that a million
keys take neither the driver's time nor its memory nor its open files.

The process says two lines: what it is, then the body as it goes to whoever asked.  It reads the
newest commit, without a lock, one key group at a time.
"""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wallaroo.engine.keys import Key, decode_key
from wallaroo.errors import CheckpointError, PeerError, WallarooError
from wallaroo.inspection.reader import CheckpointReader, StateAt
from wallaroo.processes.environment import python_environment
from wallaroo.state.commits import CommitLog
from wallaroo.state.storage import LocalStorage
from wallaroo.status_api.queries import KEYS

READ_S_MAX = 60.0  # for one reading, and for waiting until another has ended
BUSY = "the state is being read for another query. Ask again."


# -- in the driver
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entities:
    """The answer to a query: JSON, and whether ``limit`` cut a step's keys off."""

    body: bytes
    is_truncated: bool


class EntityReader:
    """Reads a checkpoint on request, in a process of its own; one at a time.  Methods may be called
    from any thread.
    """

    def __init__(self, root: Path, steps: Sequence[str]):
        self._root, self._steps = root, list(steps)
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def read(self, query: str, limit: int) -> Entities:
        """Answer one of ``queries.FROM_STATE``; ``limit`` keys of each step at most.

        Raises PeerError where it takes too long or the run ends; CheckpointError where the
        checkpoint cannot be read.
        """
        if not self._turn.acquire(timeout=READ_S_MAX):
            raise PeerError(BUSY)
        try:
            return self._read([str(self._root), query, str(limit), json.dumps(self._steps)])
        finally:
            self._turn.release()

    def close(self) -> None:
        """End a reading that is under way; later ones are refused."""
        self._is_closed = True
        process = self._process
        if process is not None:
            process.kill()

    def _read(self, arguments: list[str]) -> Entities:
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=python_environment(),
            start_new_session=True,  # Ctrl-C is for the driver
        )
        if self._is_closed:  # close() may have looked a moment too early
            process.kill()
        try:
            said, complaint = process.communicate(timeout=READ_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise PeerError(
                f"the state could not be read within {READ_S_MAX:.0f} s. Try `wallaroo state list`."
            ) from None
        finally:
            self._process = None
        return self._understood(said, complaint.decode(errors="replace"))

    def _understood(self, said: bytes, complaint: str) -> Entities:
        if self._is_closed:
            raise PeerError("the run is ending.")
        head, _, body = said.partition(b"\n")
        if not head:
            last = complaint.strip().splitlines()[-1:] or ["it was killed"]
            raise PeerError(f"the state could not be read: {last[0]}.")
        what = json.loads(head)
        if "error" in what:
            raise CheckpointError(what["error"])
        return Entities(body.rstrip(b"\n"), bool(what["is_truncated"]))


# -- in the other process
# --------------------------------------------------------------------------------------------------


def keys_of(
    state: StateAt | None, steps: Sequence[str], limit: int
) -> tuple[dict[str, list[str | int]], bool]:
    """List keys by step, key group by key group, ``limit`` of each step at most; say whether some
    were left out.
    """
    found: dict[str, list[str | int]] = {step: [] for step in steps}
    cut: set[str] = set()
    if state is None:
        return found, False
    wanted = set(steps) & set(state.commit.steps)
    for group in range(state.groups):
        if cut == wanted:
            break
        for step, encoded in state.group(group):
            if step not in wanted or step in cut:
                continue
            if len(found[step]) < limit:
                found[step].append(key_json(decode_key(encoded)))
            else:
                cut.add(step)
    return found, bool(cut)


def counts_of(state: StateAt | None, steps: Sequence[str]) -> dict[str, int]:
    """Count keys by step."""
    sizes = state.sizes() if state is not None else {}
    return {step: sizes[step].entries if step in sizes else 0 for step in steps}


def key_json(key: Key) -> str | int:
    """Say a key in JSON: text and numbers as they are, bytes as ``wallaroo state list`` shows them.

    >>> key_json("AAPL"), key_json(7), key_json(b"AAPL")
    ('AAPL', 7, "b'AAPL'")
    """
    return repr(key) if isinstance(key, bytes) else key


def main(arguments: Sequence[str]) -> int:
    """Read the newest commit of a checkpoint; say what a query asks."""
    root, query, limit, steps = (
        Path(arguments[0]),
        arguments[1],
        int(arguments[2]),
        json.loads(arguments[3]),
    )
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(ValueError, OSError):  # a commit is read with all of its files open
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        state = _newest(root)
        body: Any
        body, is_truncated = (
            keys_of(state, steps, limit) if query == KEYS else (counts_of(state, steps), False)
        )
    except WallarooError as error:
        print(json.dumps({"error": str(error)}))
        return 1
    print(json.dumps({"is_truncated": is_truncated}))
    print(json.dumps(body))
    return 0


def _newest(root: Path) -> StateAt | None:
    """The state after the newest commit; None before the first."""
    if not CommitLog(LocalStorage(str(root), False)).batches():
        return None
    return CheckpointReader(root).at()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
