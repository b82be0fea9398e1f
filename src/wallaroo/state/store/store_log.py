"""The log of a checkpoint in an object store.

It consists of numbered objects, each created once.

Layout::

    log/<number>           fences, commits and ends of runs: one sequence, without a gap at its end
    images/<number>.<run> the state after the commits up to a number
    files/<name>           large files that commits and images name
    swept/<number> present before anything right after this fence is deleted

The invariants:

* *A number is written once*, by create-if-absent.  A run owns the log from its fence on: the next
  run's fence takes the number that the former run would write next.  So of two runs one commits,
  and the other finds its number taken.  Neither a clock nor a list decides.
* *Fences are never deleted*, so the number after a run's last commit stays taken forever.
* *Other objects are deleted in the order of their numbers*, and only those that an announced image
  covers.  A run whose fence came so late that the number had been used and deleted detects it: the
  previous object is gone, or if that is a fence, marked as swept. It fences again, and readers
  recognize such a fence in the same way.
* *Unknown outcomes are read back.*  After a lost answer, a timeout or a conflict the object is
  read, and its identity compared: ours, another's, or none, and then the same bytes are written
  again.
* *List, check, delete.* Housekeeping deletes only objects listed before the object that announces
  its image was created, so none of the next owner's.
* Between the start and the end of a run objects are created, and nothing is listed, renamed or
  replaced, except by housekeeping (lists) and in ``swept/`` (the same bytes again).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar, cast

from wallaroo.errors import CheckpointError, PeerError, TakenOverError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.state.store.objects import (
    NoAnswerError,
    ObjectStore,
    TakenKeyError,
    conditions_ignored,
)
from wallaroo.state.store.records import WAYS_OUT, Head, Kind, Record, decode, encode

LOG = "log"
IMAGES = "images"
FILES = "files"
SWEPT = "swept"
PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)  # between attempts; later ones wait as long as the last
TRIES = 40  # two minutes, if each is refused at once
NAMED_S = 3.0  # without an answer: then the status names the store
FIRST_TRIES = 6  # until the first answer, as a wrong address never answers
READ_TRIES = 20  # while another run deletes what is read
_log = logging.getLogger("wallaroo.run")

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Past:
    """The content of a log: newest image and the objects after it."""

    newest: Record
    image: Record | None
    records: tuple[Record, ...]

    @property
    def all(self) -> tuple[Record, ...]:
        """Return the image and the objects after it."""
        return (self.image, *self.records) if self.image else self.records


@dataclass(frozen=True, slots=True)
class Listed:
    """The names that existed before an image was announced."""

    numbers: list[int]
    images: list[str]
    files: list[str]


class StoreLog:
    """The log below a URL, as one run or reader sees it."""

    def __init__(
        self,
        objects: ObjectStore,
        owner: str = "",
        sleep: Callable[[float], None] = time.sleep,
        named_s: float = NAMED_S,
    ):
        self._objects = objects
        self._owner = owner
        self._sleep = sleep
        self._named_s = named_s
        self.run = uuid.uuid4().hex
        self._last: Head | None = None  # the last object that this run wrote
        self._fences: tuple[int, ...] = ()
        self._tries = FIRST_TRIES
        self._silence: tuple[float, str] | None = None  # since when (monotonic), and its cause
        self._appending = threading.Lock()

    @property
    def url(self) -> str:
        return self._objects.url

    @property
    def is_fenced(self) -> bool:
        """Return whether this run has owned the log."""
        return self._last is not None

    @property
    def is_appending(self) -> bool:
        """Return whether another thread waits for the answer to its object."""
        return self._appending.locked()

    @property
    def waiting_for(self) -> str:
        """Return in words that the store has not answered for a while; empty if it does."""
        silence = self._silence
        if silence is None or time.monotonic() - silence[0] < self._named_s:
            return ""
        return f"the object store of {self.url}, which does not answer ({silence[1]})"

    @property
    def last(self) -> Head:
        """Return the head of the last object that this run wrote."""
        assert self._last is not None
        return self._last

    # -- asking

    def _asked(self, request: Callable[[], Answer], tries: int = TRIES) -> Answer:
        """Return the answer to a request that may be repeated."""
        attempt = 0
        while True:
            try:
                answer = request()
            except NoAnswerError as error:
                if error.is_reached:
                    self._tries = TRIES
                self._wait(attempt, min(self._tries, tries), error)
                attempt += 1
            else:
                self._tries = TRIES
                self._silence = None
                return answer

    def _wait(self, attempt: int, tries: int, error: BaseException) -> None:
        """Wait before the next attempt.  Raises PeerError after the last one."""
        self._silence = self._silence or (time.monotonic(), str(error))
        if attempt + 1 >= tries:
            raise PeerError(
                f"the object store of {self.url} does not answer: {error}. What is committed "
                f"stays; run again once it does."
            ) from error
        if attempt == len(PAUSES_S):
            _log.warning("the object store of %s does not answer (%s); trying on", self.url, error)
        self._sleep(PAUSES_S[min(attempt, len(PAUSES_S) - 1)])

    def read(self, number: int, tries: int = TRIES) -> Record | None:
        """Return the object of a number; None if there is none."""
        key = _key(number)
        content = self._asked(lambda: self._objects.get(key), tries)
        return None if content is None else self._record(number, content)

    def _record(self, number: int, content: bytes) -> Record:
        """Return the object of a number. Raises CheckpointError if damaged or another object's."""
        key = _key(number)
        record = decode(content, f"{self.url}/{key}")
        if record.head.number != number:
            raise CheckpointError(
                f"{self.url}/{key} has the content of object {record.head.number}. {WAYS_OUT}"
            )
        return record

    def probe(self) -> None:
        """Raise PeerError unless the store answers and honours conditions.

        It creates an object twice, replaces it on the condition of a version that it never had, and
        deletes it.
        """
        key = f"probe/{self.run}"
        content = self.run.encode()

        def is_created() -> bool:
            with contextlib.suppress(TakenKeyError):
                self._objects.create(key, content)
                return True
            return False

        def create() -> None:
            is_created()
            if self._objects.get(key) is None:
                raise NoAnswerError("a conflict with an object that is not there", is_reached=True)

        self._asked(create)
        try:
            for is_carried_out in (is_created, lambda: self._objects.replace_stale(key, b"")):
                if self._asked(is_carried_out):
                    raise conditions_ignored(self.url)
        finally:
            with contextlib.suppress(NoAnswerError):
                self._objects.delete(key)

    # -- reading

    def newest(self) -> Record | None:
        """Return the newest object; None if the log is empty.

        A list is where the search begins; objects after it are asked for by number.
        """
        for _ in range(READ_TRIES):
            numbers = self._numbers()
            newest = self.read(numbers[-1] if numbers else 0)
            if newest is None and not numbers:
                return None
            while newest is not None:
                following = self.read(newest.head.number + 1)
                if following is None:
                    break
                newest = following
            if newest is not None and self._is_last(newest.head):
                return newest
            self._sleep(PAUSES_S[0])  # the list was stale: the objects it named are deleted
        raise self._changing()

    def _numbers(self) -> list[int]:
        """Return the listed numbers, without half-written objects."""
        return [int(name) for name in self.names(LOG) if name.isdigit()]

    def _is_last(self, head: Head) -> bool:
        """Return whether an object with none after it is the newest one, and on the line.

        An old list leads to a fence whose followers are deleted, or to one that came so late that
        its number had been used and deleted.
        """
        before = self.read(head.number - 1) if head.number else None
        if before is None:
            # objects that an image covers may be deleted
            is_on_line = head.since >= head.number - 1
        else:
            is_on_line = not self._is_followed(before.head)
        return is_on_line and not self._is_followed(head)

    def _is_followed(self, head: Head) -> bool:
        """Return whether the number after this object's was used, and that object is deleted.

        Then this one is deleted as well, unless it is a fence; a late fence may have its number.
        """
        if head.kind is not Kind.FENCE:
            there = self.read(head.number)
            return there is None or there.head.id != head.id
        key = f"{SWEPT}/{head.number:020d}"
        return self._asked(lambda: self._objects.get(key)) is not None

    def past(self) -> Past | None:
        """Return the content of the log; None if it is empty."""
        for _ in range(READ_TRIES):
            newest = self.newest()
            if newest is None:
                return None
            head = newest.head
            image = self._image(head.image) if head.image else None
            numbers = range(head.since + 1, head.number)
            keys = list(map(_key, numbers))
            contents = self._asked(lambda keys=keys: self._objects.get_many(keys))  # type: ignore[misc]  # bound at once
            if (image is None) is (head.image == "") and None not in contents:
                between = map(self._record, numbers, cast(list[bytes], contents))
                records = (*between, newest) if head.number > head.since else ()
                return Past(newest, image, records)
        raise self._changing()

    def _image(self, key: str) -> Record | None:
        content = self._asked(lambda: self._objects.get(key))
        return None if content is None else decode(content, f"{self.url}/{key}")

    def _changing(self) -> CheckpointError:
        return CheckpointError(
            f"the log in {self.url} changes faster than it can be read, or objects of it are "
            f"missing. Try again; if it stays so, restore them from earlier versions."
        )

    def names(self, folder: str) -> list[str]:
        return self._asked(lambda: self._objects.names(folder))

    def file(self, name: str) -> bytes | None:
        """Return a large file's content."""
        return self._asked(lambda: self._objects.get(f"{FILES}/{name}"))

    # -- writing, by the run that owns the log

    def fence(self, before: Head | None, checkpoint: str, *, is_fresh: bool = False) -> bool:
        """Own the log from here on; return False if it has grown since ``before`` was read.

        ``is_fresh``: its content no longer counts.
        """
        number = before.number + 1 if before else 0
        fences = (*self._fences_up_to(before), number)
        head = Head(
            number,
            Kind.FENCE,
            uuid.uuid4().hex,
            self.run,
            len(fences),
            checkpoint,
            self._owner,
            parent=before.id if before else "",
            image=before.image if before and not is_fresh else "",
            since=before.since if before and not is_fresh else number,
            fence=number,
            fences=fences,
        )
        fault_point("store.fence")
        if not self._is_created(Record(head)) or (before and self._is_followed(before)):
            return False
        self._last = head
        self._fences = fences
        return True

    def _fences_up_to(self, head: Head | None) -> tuple[int, ...]:
        """Return the numbers of all fences up to an object, which names the last of them."""
        fence = self.read(head.fence) if head else None
        return fence.head.fences if fence else ()

    def append(
        self,
        kind: Kind,
        record: Record | None = None,
        image: Head | None = None,
        tries: int = TRIES,
    ) -> Head:
        """Add an object with the commits and files of ``record``; announce an image.

        Returns once the store has answered.  Raises TakenOverError if another run owns the log,
        PeerError if the store does not answer.
        """
        with self._appending:
            return self._append(kind, record, image, tries)

    def _append(self, kind: Kind, record: Record | None, image: Head | None, tries: int) -> Head:
        last = self.last
        body = record or Record(last)
        head = replace(
            last,
            number=last.number + 1,
            kind=kind,
            id=uuid.uuid4().hex,
            parent=last.id,
            commits=body.head.commits if record else (),
            files=body.head.files if record else (),
            fences=(),
            image=image_key(image) if image else last.image,
            since=image.number if image else last.since,
        )
        fault_point("store.append")
        if not self._is_created(Record(head, body.payload if record else b""), tries):
            raise self.taken_over(self.read(head.number))
        fault_point("store.appended")
        self._last = head
        return head

    def taken_over(self, other: Record | None) -> TakenOverError:
        """Return the error for a run whose next number another run used."""
        head = other.head if other else None
        words = f"epoch {head.epoch}, {head.owner}" if head else "another run"
        return TakenOverError(
            f"checkpoint {self.url} was taken over by {words}. This run ends. What it had not "
            f"committed by then, the other run processes. Do not start it again beside the other "
            f"one."
        )

    def _is_created(self, record: Record, tries: int = TRIES) -> bool:
        """Create an object; return whether the object of that number is this one."""
        key = _key(record.head.number)
        content = encode(record)
        for attempt in range(tries):
            failure: BaseException
            try:
                self._objects.create(key, content)
            except (NoAnswerError, TakenKeyError) as error:
                failure = error
            else:
                self._silence = None
                return True
            there = self.read(record.head.number, tries)
            if there is not None:
                return there.head.id == record.head.id
            self._wait(attempt, tries, failure)
        raise AssertionError("the last wait raises")

    def put_file(self, name: str, content: bytes | Path) -> None:
        """Store a large file; its name is never used for another content."""
        self._asked(lambda: self._objects.put(f"{FILES}/{name}", content))

    # -- housekeeping

    def put_image(self, head: Head, file: Path) -> Listed:
        """Store an image; return the objects to delete once it is announced."""
        self._asked(lambda: self._objects.put(image_key(head), file))
        return Listed(self._numbers(), self.names(IMAGES), self.names(FILES))

    def sweep(self, listed: Listed, image: Head, needed: Iterable[str]) -> None:
        """Delete listed objects that the announced image, and later objects, do not need."""
        kept = {image_key(image), *(f"{FILES}/{name}" for name in needed)}
        for number in listed.numbers:
            if number <= image.number and number not in self._fences:
                if number - 1 in self._fences:
                    swept = f"{SWEPT}/{number - 1:020d}"
                    self._asked(lambda swept=swept: self._objects.put(swept, b""))  # type: ignore[misc]  # bound at once
                fault_point("store.sweep")
                self._deleted(_key(number))
        for folder, names in ((IMAGES, listed.images), (FILES, listed.files)):
            for key in (f"{folder}/{name}" for name in names):
                if key not in kept:
                    self._deleted(key)

    def _deleted(self, key: str) -> None:
        self._asked(lambda: self._objects.delete(key))


def image_key(head: Head) -> str:
    return f"{IMAGES}/{head.number:020d}.{head.run}"


def _key(number: int) -> str:
    return f"{LOG}/{number:020d}"
