"""State entities: the keys of state steps, their counts, and their objects.

The object of a key is shown by commit.  All is read from the checkpoint of a running application.

Where it runs: ``EntityReader`` in the driver; the rest in a process of its own, so that a million
keys do not use the driver's time, memory or open files.

The process is a child like the others (``processes.child``) that reports whether its answer was
cut, then the body as the client gets it.  It reads the newest commit, without a lock, one key group
at a time.
"""

from __future__ import annotations

import ast
import json
import queue
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wallaroo.checkpoints.inspection.reader import CheckpointReader, StateAt
from wallaroo.checkpoints.inspection.values import DecodedValue
from wallaroo.engine.blocks.keys import Key, decode_key, normalize_key
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.monitoring.status_api.queries import KEYS, OBJECT, SEARCH
from wallaroo.processes.child import configuration, end_of, say
from wallaroo.processes.open_files import allow_many_files
from wallaroo.processes.supervisor import BODY, END, Child
from wallaroo.state.log.commits import CommitLog
from wallaroo.state.log.storage import LocalStorage

READ_S_MAX = 60.0  # for one reading, and for waiting until another has ended
BUSY = "the state is being read for another query. Ask again."


# -- in the driver


@dataclass(frozen=True, slots=True)
class Entities:
    """The answer to a query: JSON, and whether ``limit`` cut it."""

    body: bytes
    is_truncated: bool


@dataclass(frozen=True, slots=True)
class Question:
    """A query, as the process that reads gets it."""

    root: str
    query: str
    limit: int
    steps: tuple[str, ...]
    wanted: dict[str, str]


class EntityReader:
    """Reader of a checkpoint on request, in a separate process.

    It reads one query at a time.  Methods may be called from any thread.
    """

    def __init__(self, root: Path, steps: Sequence[str], read_s: float = READ_S_MAX):
        self._root = root
        self._read_s = read_s
        self._steps = tuple(steps)
        self._turn = threading.Lock()
        self._child: Child | None = None
        self._is_closed = False

    def read(self, query: str, limit: int, wanted: Mapping[str, str] | None = None) -> Entities:
        """Answer ``queries.KEYS``, one of ``queries.COUNTS``, a search or a query for one object.

        The answer has at most ``limit`` keys of each step (commits, for an object).  ``wanted``
        holds the query's other parameters.

        Raises PeerError if it takes too long or the run ends; CheckpointError if the checkpoint
        cannot be read.
        """
        if not self._turn.acquire(timeout=self._read_s):
            raise PeerError(BUSY)
        try:
            return self._read(
                Question(str(self._root), query, limit, self._steps, dict(wanted or {}))
            )
        finally:
            self._turn.release()

    def close(self) -> None:
        """End a current reading; refuse later ones."""
        self._is_closed = True
        child = self._child
        if child is not None:
            child.process.kill()

    def _read(self, question: Question) -> Entities:
        complaints: list[str] = []
        child = Child(
            "reader of state entities", [__name__], complaints.append, configuration=question
        )
        self._child = child
        if self._is_closed:  # close() may have read ``_child`` a moment too early
            child.process.kill()
        try:
            return self._understood(child, complaints)
        finally:
            self._child = None
            child.kill()
            child.release()

    def _understood(self, child: Child, complaints: list[str]) -> Entities:
        until = time.monotonic() + self._read_s
        is_truncated = False
        while True:
            try:
                word, content = child.lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise PeerError(
                    f"the state could not be read within {self._read_s:.0f} s. "
                    "Try `wallaroo state list`."
                ) from None
            if self._is_closed:
                raise PeerError("the run is ending.")
            if word == "READY":
                is_truncated = content["is_truncated"]
            elif word == BODY:
                return Entities(content.encode(), is_truncated)
            elif word == "ERROR":
                raise CheckpointError(*content["facts"])
            elif word == END:
                child.wait_for_log()
                last = complaints[-1] if complaints else "it was killed"
                raise PeerError(f"the state could not be read: {last}.")


# -- in the other process


def keys_of(
    state: StateAt | None, steps: Sequence[str], limit: int
) -> tuple[dict[str, list[str | int]], bool]:
    """List keys by step and group, ``limit`` per step; return whether some were left out."""
    keys: dict[str, list[str | int]] = {step: [] for step in steps}
    cut: set[str] = set()
    if state is None:
        return keys, False
    wanted = set(steps) & set(state.steps)
    for group in range(state.groups):
        if cut == wanted:
            break
        for step, encoded in state.keyed(group):
            if step not in wanted or step in cut:
                continue
            if len(keys[step]) < limit:
                keys[step].append(key_json(decode_key(encoded)))
            else:
                cut.add(step)
    return keys, bool(cut)


def counts_of(state: StateAt | None, steps: Sequence[str]) -> dict[str, int]:
    sizes = state.sizes() if state is not None else {}
    return {step: sizes[step].keys if step in sizes else 0 for step in steps}


def key_json(key: Key) -> str | int:
    """Return a key as JSON has it.

    Text and numbers as they are, bytes and tuples as ``wallaroo state list`` shows them.

    >>> key_json("AAPL"), key_json(7), key_json(b"AAPL"), key_json(("A", 7))
    ('AAPL', 7, "b'AAPL'", "('A', 7)")
    """
    return repr(key) if isinstance(key, bytes | tuple) else key


def search(
    state: StateAt | None, steps: Sequence[str], text: str, limit: int
) -> tuple[list[dict[str, Any]], bool]:
    """List keys that contain ``text``, with sizes; return whether some were left out."""
    matches: list[dict[str, Any]] = []
    if state is None:
        return matches, False
    for group in range(state.groups):
        for (step, _), entry in state.keyed(group).items():
            key = key_json(entry.key)
            if step not in steps or text.casefold() not in str(key).casefold():
                continue
            if len(matches) == limit:
                return matches, True
            matches.append({"step": step, "key": key, "key_group": group, "bytes": entry.size})
    return matches, False


def object_history(
    reader: CheckpointReader, step: str, text: str, commits_max: int
) -> dict[str, Any]:
    """Return the object of one key after each retained commit that changed it, newest first."""
    commits = reader.commits()[-commits_max:]
    versions: list[dict[str, Any]] = []
    before: DecodedValue | None = None
    for commit in commits:
        state = reader.at(commit.batch)
        entry = next(iter(state.find(keys_meant(text), step)), None)
        shown = state.forms.show(entry) if entry is not None else None
        if shown != before:
            versions.append(
                {
                    "batch": commit.batch,
                    "time_ms": commit.time_ms,
                    "class": shown.class_name if shown else "",
                    "value": shown.value if shown else None,
                    "is_there": shown is not None,
                    "bytes": entry.size if entry is not None else 0,
                }
            )
        before = shown
    return {
        "step": step,
        "key": text,
        "commits": [commit.batch for commit in commits],
        "versions": versions[::-1],
    }


def keys_meant(text: str) -> list[Key]:
    """Return the possible keys for a text, the most likely first.

    >>> keys_meant("7"), keys_meant("b'x'"), keys_meant("the"), keys_meant("('a', 7)")
    (['7', 7], ["b'x'", b'x'], ['the'], ["('a', 7)", ('a', 7)])
    """
    try:
        literal = ast.literal_eval(text)
        is_key = not isinstance(literal, str | bool) and normalize_key(literal) == literal
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return [text]
    return [text, literal] if is_key else [text]


def answer(question: Question) -> tuple[Any, bool]:
    """Return the body of an answer, and whether the limit cut it."""
    root = Path(question.root)
    query = question.query
    limit = question.limit
    steps = question.steps
    wanted = question.wanted
    if query == OBJECT:
        step = wanted["step"] or next(iter(steps), "")
        if not CommitLog(LocalStorage(str(root), False)).batches():
            return {"step": step, "key": wanted["key"], "commits": [], "versions": []}, False
        return object_history(CheckpointReader(root), step, wanted["key"], limit), False
    state = _newest(root)
    if query == SEARCH:
        chosen = [step for step in steps if wanted["step"] in ("", step)]
        return search(state, chosen, wanted["text"], limit)
    return keys_of(state, steps, limit) if query == KEYS else (counts_of(state, steps), False)


def main() -> int:
    """Read a checkpoint; print the answer to a query."""
    question = configuration(Question)
    allow_many_files()  # a commit is read with all of its files open

    def work() -> None:
        body, is_truncated = answer(question)
        say("READY", {"is_truncated": is_truncated})
        print(BODY, json.dumps(body), flush=True)

    return end_of("reader of state entities", work)


def _newest(root: Path) -> StateAt | None:
    """Return the state after the newest commit; None before the first."""
    if not CommitLog(LocalStorage(str(root), False)).batches():
        return None
    return CheckpointReader(root).at()


if __name__ == "__main__":
    sys.exit(main())
