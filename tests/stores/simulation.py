"""Histories of several drivers on one log in an object store, with a model of what must hold.

Where it runs: tests.  Drivers take the log over from each other, are stopped and killed at any
request, and lose answers; a commit is *reported* once ``append`` has returned.  The model: all
reported commits are on the line that the next reader finds, and each follows the one before.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.stores.model import DeadError, Model, ModelObjects, Turns
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.state.store.records import Head, Kind, Record, encode, packed
from wallaroo.state.store.store_log import Past, StoreLog

DRIVERS = 3
LIVES = 3  # of each driver
COMMITS = 12  # of each life, at most
IMAGE_EVERY = 3

NewLog = Callable[[ModelObjects], StoreLog]


class HistoryError(AssertionError):
    """A reported commit that is not on the line, or that is there twice."""


def new_log(objects: ModelObjects) -> StoreLog:
    """Return a log whose waits take no time."""
    return StoreLog(objects, "a driver", sleep=lambda seconds: None)


class History:
    """One history: what drivers reported, in order, and what the log holds at the end."""

    def __init__(self, seed: int, new_log: NewLog = new_log):
        self._random = random.Random(seed)
        self.model = Model(self._random.randrange(1 << 30), 0.1, 0.003)
        self._new_log = new_log
        self._ids = 0
        self.reported: dict[int, str] = {}  # by number
        self.images = 0
        self.fences = 0
        self.files = 0  # large files that the store holds at the end

    def run(self) -> None:
        """Run the drivers, then read.  Raises HistoryError."""
        with tempfile.TemporaryDirectory() as folder:
            turns = Turns(self._random)
            turns.run([lambda turn: self._lives(turn, Path(folder)) for _ in range(DRIVERS)])
        self.model.is_quiet = True
        line = self._line(new_log(ModelObjects(self.model)))
        self.files = sum(key.startswith("files/") for key in self.model.objects)
        for number, id in self.reported.items():
            if number >= len(line) or line[number] != id:
                raise HistoryError(f"commit {number} was reported as {id}: {line}")

    def _lives(self, turn: Callable[[], None], folder: Path) -> None:
        for _ in range(LIVES):
            log = self._new_log(ModelObjects(self.model, turn))
            try:
                self._live(log, folder / log.run)
            except (DeadError, CheckpointError, PeerError) as error:
                if "missing in the object store" in str(error):
                    raise HistoryError(str(error)) from error

    def _live(self, log: StoreLog, image_file: Path) -> None:
        while True:
            past = log.past()
            head = past.newest.head if past else None
            if log.fence(head, "checkpoint"):
                break
        self.fences += 1
        line = list(_ids(past))
        since_image = 0
        begun: tuple[Head, object] | None = None
        apart = {
            file.name: record.head.number
            for record in (past.all if past else ())
            for file in record.head.files
        }
        for name in apart:
            if log.file(name) is None:
                if log.read(log.last.number + 1) is not None:
                    return  # taken over by one that no longer needs the file
                raise HistoryError(f"{name} is missing in the object store")
        for _ in range(self._random.randrange(COMMITS)):
            self._ids += 1
            id = f"{self._ids}"
            name = f"deltas/{id}"
            log.put_file(name, id.encode())
            files, _ = packed({name: id.encode()}, {name})
            head = replace(log.last, commits=(json.dumps({"after": len(line), "id": id}),))
            announced = begun
            appended = log.append(
                Kind.COMMITS,
                Record(replace(head, files=files)),
                announced[0] if announced else None,
            )
            self._report(len(line), id)
            line.append(id)
            apart[name] = appended.number
            since_image += 1
            if announced is not None:
                begun = None
                image, listed = announced
                in_image = {file.name for file in image.files}
                needed = [
                    each for each, at in apart.items() if at > image.number or each in in_image
                ]
                log.sweep(listed, image, needed)  # type: ignore[arg-type]  # as it was returned
            elif since_image >= IMAGE_EVERY:
                since_image = 0
                self.images += 1
                begun = self._image(log, line, image_file)

    def _image(self, log: StoreLog, line: list[str], file: Path) -> tuple[Head, object]:
        newest = {f"deltas/{line[-1]}": line[-1].encode()}
        files, _ = packed(newest, newest)
        commits = tuple(json.dumps({"after": number, "id": id}) for number, id in enumerate(line))
        head = replace(log.last, kind=Kind.IMAGE, commits=commits, files=files)
        file.write_bytes(encode(Record(head)))
        return head, log.put_image(head, file)

    def _report(self, number: int, id: str) -> None:
        if number in self.reported:
            raise HistoryError(f"commit {number} is reported as {self.reported[number]} and {id}")
        self.reported[number] = id

    def _line(self, log: StoreLog) -> list[str]:
        try:
            past = log.past()
        except CheckpointError as error:  # all drivers have ended
            raise HistoryError(str(error)) from error
        line = list(_ids(past))
        for record in past.all if past else ():
            for file in record.head.files:
                if log.file(file.name) is None:
                    raise HistoryError(f"{file.name} is missing in the object store")
        return line


def _ids(past: Past | None) -> list[str]:
    """Return the ids of a log's commits; each states how many come before it."""
    ids: list[str] = []
    for record in past.all if past else ():
        for text in record.head.commits:
            commit = json.loads(text)
            if commit["after"] != len(ids):
                raise HistoryError(f"{commit} comes after {ids}")
            ids.append(commit["id"])
    return ids
