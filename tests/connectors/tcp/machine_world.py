"""A committer, a network and a receiver as values around an egress's machine, which check what it
does.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tests.unit.sinks.identities import CHECKPOINT, commit_of
from wallaroo.connectors.tcp.egress.machine import EgressMachine
from wallaroo.connectors.tcp.egress.states import (
    BEGUN,
    Action,
    Begin,
    Close,
    Committer,
    Dial,
    HalfClose,
    Place,
    ReceiverState,
    Record,
    Release,
    Send,
    State,
    Tell,
)
from wallaroo.connectors.tcp.pipe import (
    GREETING,
    OFFSET,
    EgressConfig,
    Message,
)
from wallaroo.connectors.tcp.progress import OutputProgress
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.staging import Staged, StagedToken

CONFIG = EgressConfig("there", 9, "", is_durable=True, is_resuming=False)


@dataclass(slots=True)
class Link:
    """A connection, as the sender's kernel and the receiver know it."""

    start: int | None = None
    sent: int = 0
    acked: int = 0
    is_ended: bool = False
    has_reported: bool = False

    @property
    def position(self) -> int:
        return (self.start or 0) + self.sent

    @property
    def acked_to(self) -> int:
        return (self.start or 0) + self.acked


@dataclass
class World:
    """An outbox and a receiver that outlive any egress; `do` checks every action."""

    is_resuming: bool = False
    progress: OutputProgress = field(default_factory=lambda: OutputProgress(CHECKPOINT))

    def __post_init__(self) -> None:
        self.now = 0.0
        self.stream = b""
        self.starts = {0}  # of outputs, and the end
        self.batches: list[PendingBatch] = []
        self.parts: dict[str, list[bytes]] = {}
        self.received = b""  # what a resuming receiver has
        self.confirmed = 0  # the highest offset that was ever acknowledged
        self.resume_from = 0  # acknowledged when the last connection was lost
        self.room = 1 << 20
        self.link: Link | None = None
        self.done: list[Action] = []
        self.begin_egress()

    # -- the processes

    def begin_egress(self) -> None:
        """Start an egress; one that died knows no more than what it recorded."""
        config = replace(CONFIG, is_resuming=self.is_resuming)
        if self.link is not None and self.link.start is not None:
            config = replace(config, inherited_start=self.link.start)
        self.is_dialing = False
        self.machine = EgressMachine(config, self.progress, self._load)
        waiting = [one for one in self.batches if one.batch > self.progress.released_batch]
        self.to_hand: deque[Message] = deque(map(message_of, waiting))
        self.to_hand.append({"start": True})

    def crash(self, *, is_taken_over: bool) -> None:
        """Kill the egress; the connection ends too, unless the next one takes it over."""
        link = self.link
        if not (is_taken_over and link and link.start is not None) or self.is_resuming:
            self.link = None
            self.resume_from = self.progress.acked
        self.begin_egress()
        if self.link is not None:
            accepted = self.link.position
            self.machine.take_over(accepted, self.link.acked_to, self.link.is_ended, self.now)

    def _load(self, token: StagedToken) -> Staged:
        outputs = self.parts[token["file"]]
        return Staged(memoryview(b"".join(outputs)), array("I", map(len, outputs)))

    # -- the committer

    def commit(self, sizes: Iterable[int], skipped_bytes: int = 0) -> None:
        """Commit a batch of outputs of these sizes, to be handed over."""
        number = len(self.batches)
        outputs = [bytes([65 + (number + place) % 26]) * size for place, size in enumerate(sizes)]
        body = b"".join(outputs)
        token = StagedToken(file=f"{number}", inline="", bytes=len(body), outputs=len(sizes), crc=0)
        self.parts[token["file"]] = outputs
        batch = PendingBatch(
            commit_of(number),
            len(self.stream),
            len(body),
            len(outputs),
            (token,),
            skipped_bytes=skipped_bytes,
        )
        for output in outputs:
            self.stream += output
            self.starts.add(len(self.stream))
        self.batches.append(batch)
        self.to_hand.append(message_of(batch))

    def hand_over(self) -> None:
        """Hand the next message over, if there is one."""
        if self.to_hand:
            self.tell(self.to_hand.popleft())

    def hand_all_over(self) -> None:
        while self.to_hand:
            self.hand_over()

    def tell(self, message: Message) -> None:
        self.do(self.machine.receive_message(message))

    # -- the network and the receiver

    def answer(self, reason: str = "") -> None:
        """End the attempt to connect, with a connection or a reason."""
        self.is_dialing = False
        if reason:
            self.do(self.machine.refuse(reason, self.now))
        else:
            self.link = Link()
            self.do(self.machine.connect())

    def write(self, room: int = 1 << 20) -> None:
        """Give the connection room for so many bytes."""
        self.room = room
        self.do(self.machine.send())

    def acknowledge(self, count: int = 1 << 20) -> None:
        """Let so many bytes arrive."""
        assert self.link is not None
        count = min(count, self.link.sent - self.link.acked)
        arrived = self.stream[self.link.acked_to : self.link.acked_to + count]
        self.link.acked += count
        if self.is_resuming:
            self.received += arrived
        else:
            self.confirmed = max(self.confirmed, self.link.acked_to)

    def report(self) -> None:
        """Let the resuming receiver report how much it has."""
        assert self.link is not None
        greeting = b"" if self.link.has_reported else GREETING
        self.link.has_reported = True
        self.confirmed = max(self.confirmed, len(self.received))
        self.reply(greeting + OFFSET.pack(len(self.received)))

    def reply(self, chunk: bytes) -> None:
        """Let the receiver write; nothing is its end."""
        self.do(self.machine.receive(chunk, self.acked, self.now))

    def break_off(self) -> None:
        """Break the connection."""
        self.do(self.machine.lose("Connection reset by peer", self.acked, self.now))

    @property
    def acked(self) -> int | None:
        return self.link.acked_to if self.link is not None else None

    def settle(self, seconds: float = 0.0, error: str = "") -> None:
        """Let time pass, and the machine do what is due."""
        self.now += seconds
        self.do(self.machine.settle(self.now, self.acked, error=error))
        assert (self.link is not None) == (self.machine.state.name in OPEN_NAMES)

    # -- the loop

    def do(self, actions: list[Action]) -> None:
        """Execute actions, and check what must hold for each."""
        self.done += actions
        for action in actions:
            match action:
                case Dial():
                    assert self.machine.committer is Committer.SUPPLYING
                    assert self.link is None
                    self.is_dialing = True
                case Begin(start):
                    self._begin(start)
                case Send(views):
                    self._send(b"".join(views))
                case HalfClose():
                    assert self.machine.committer is Committer.CLOSED
                    assert self.link is not None
                    is_listed = {"start": True} not in self.to_hand  # else the driver died early
                    assert self.link.position in self.starts or not is_listed
                    self.link.is_ended = True
                case Close():
                    assert self.link is not None
                    if self.link.start is not None:
                        self.resume_from = self.link.acked_to
                    self.link = None
                case Record(changes):
                    self.progress = replace(self.progress, **changes)
                case Place(accepted, acked, _):
                    assert acked <= self.confirmed
                    self.progress = replace(self.progress, accepted=accepted, acked=acked)
                case Release():
                    self._release(action)
                case Tell():
                    pass

    def _begin(self, start: int) -> None:
        assert self.link is not None
        assert self.link.start is None
        if self.is_resuming:
            assert start == len(self.received)
        else:
            place = max(self.resume_from, self.progress.released_end)
            assert start == max(one for one in self.starts if one <= place)
        self.link.start = start

    def _send(self, piece: bytes) -> None:
        link = self.link
        assert link is not None
        if piece:
            assert link.start is not None
            assert not link.is_ended
            end = link.position + len(piece)
            assert piece == self.stream[link.position : end], "a byte twice, or a gap"
            if self.machine.state is State.FINISHING:
                assert end == min(one for one in self.starts if one > link.position)
                assert link.position not in self.starts, "a new output after the end was asked for"
            batch = next(one for one in self.batches if one.start <= link.position < one.end)
            assert self.progress.begun_batch >= batch.batch, "it left, and is not recorded to"
            count = min(self.room, len(piece))
            link.sent += count
            self.do(self.machine.sent(count, 7))

    def _release(self, release: Release) -> None:
        assert self.progress.released_batch < release.batch
        assert self.batches[release.batch].end == release.end <= self.confirmed
        self.progress = replace(
            self.progress,
            released_batch=release.batch,
            released_end=release.end,
            skipped=release.skipped,
            accepted=release.accepted,
            acked=release.acked,
        )

    # -- a whole course

    def finish(self) -> None:
        """Let everything work from now on, with another egress if this one exits."""
        for _ in range(100):
            if self.machine.state is State.DONE:
                self.crash(is_taken_over=False)
            self.hand_all_over()
            self.settle(seconds=1.0)
            if self.is_dialing:
                self.answer()
            if self.link is not None:
                self._work(self.link)
            if self.progress.released_batch == len(self.batches) - 1:
                return
        raise AssertionError(f"not everything is released in state {self.machine.state}")

    def _work(self, link: Link) -> None:
        if self.is_resuming:
            self.report()
        while self.machine.has_output:
            self.write()
        self.acknowledge()
        if self.is_resuming and self.machine.state in BEGUN:
            self.report()
        if link.is_ended and self.machine.receiver is ReceiverState.WRITING:
            self.reply(b"")


def message_of(batch: PendingBatch) -> Message:
    return {"commit": batch.to_json(), "end": batch.end + batch.skipped_bytes}


OPEN_NAMES = {"GREETING", "CONNECTED", "SENDING", "FINISHING", "DRAINING"}
