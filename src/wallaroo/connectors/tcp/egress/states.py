"""The states of an egress, their transitions, and its actions as values.

Three parties have a state each: this side of the connection, the receiver's side and the committer.
An event that the table of a state lacks cannot happen in it: `step` raises InternalError.

The machine returns actions, and the loop executes them in order. `Dial` and `Send`, whose outcome
is the machine's next input, are always the last of their list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeAlias, TypeVar

from wallaroo.connectors.tcp.pipe import Message
from wallaroo.errors import InternalError


class State(Enum):
    """The states of this side of the connection."""

    DISCONNECTED = auto()  # no connection, and no attempt to connect
    CONNECTING = auto()  # an attempt is under way
    GREETING = auto()  # open; a resuming receiver has not reported its offset yet
    CONNECTED = auto()  # open, but nothing was sent on it
    SENDING = auto()  # the offset of its first byte is fixed
    FINISHING = auto()  # only the rest of the current output is still sent
    DRAINING = auto()  # this side has ended; the receiver reads the rest and ends its own
    DONE = auto()  # the egress exits


class ReceiverState(Enum):
    """The states of the receiver's side; every connection starts with the first."""

    WRITING = auto()  # it may write
    ENDED = auto()  # it will write no more; it may still read


class Committer(Enum):
    LISTING = auto()  # it hands over what an earlier run left
    SUPPLYING = auto()  # all of that was handed over; new batches follow
    CLOSED = auto()  # it asked for the end, or has ended


class Event(Enum):
    """The events that change a state."""

    DIAL = auto()  # an attempt to connect starts
    REFUSE = auto()  # the attempt failed
    CONNECT = auto()  # it succeeded
    GREET = auto()  # it succeeded, and the receiver has to report its offset first
    TAKE_OVER = auto()  # a killed egress left a connection
    TAKE_OVER_ENDED = auto()  # the same, and it had ended its side
    BEGIN = auto()  # the offset of the first byte is fixed
    FINISH = auto()  # nothing new is sent
    END = auto()  # this side ends
    LEAVE = auto()  # the connection is closed, or broken
    START = auto()  # the committer has handed over what an earlier run left
    CLOSE = auto()  # the committer asks for the end, or has ended
    EXIT = auto()  # closed, and without a connection


CONNECTION = {
    State.DISCONNECTED: {
        Event.DIAL: State.CONNECTING,
        Event.TAKE_OVER: State.SENDING,
        Event.TAKE_OVER_ENDED: State.DRAINING,
        Event.EXIT: State.DONE,
    },
    State.CONNECTING: {
        Event.REFUSE: State.DISCONNECTED,
        Event.CONNECT: State.CONNECTED,
        Event.GREET: State.GREETING,
        Event.EXIT: State.DONE,
    },
    State.GREETING: {Event.BEGIN: State.SENDING, Event.LEAVE: State.DISCONNECTED},
    State.CONNECTED: {Event.BEGIN: State.SENDING, Event.LEAVE: State.DISCONNECTED},
    State.SENDING: {Event.FINISH: State.FINISHING, Event.LEAVE: State.DISCONNECTED},
    State.FINISHING: {Event.END: State.DRAINING, Event.LEAVE: State.DISCONNECTED},
    State.DRAINING: {Event.LEAVE: State.DISCONNECTED},
    State.DONE: {},
}
COMMITTER = {
    Committer.LISTING: {Event.START: Committer.SUPPLYING, Event.CLOSE: Committer.CLOSED},
    Committer.SUPPLYING: {Event.CLOSE: Committer.CLOSED},
    Committer.CLOSED: {Event.START: Committer.CLOSED, Event.CLOSE: Committer.CLOSED},
}
BEGUN = frozenset([State.SENDING, State.FINISHING, State.DRAINING])
OPEN = BEGUN | {State.GREETING, State.CONNECTED}

S = TypeVar("S", bound=Enum)


def step(table: Mapping[S, Mapping[Event, S]], state: S, event: Event) -> S:
    """Return the state that follows.

    >>> step(CONNECTION, State.SENDING, Event.LEAVE)
    <State.DISCONNECTED: 1>
    """
    if event not in table[state]:
        raise InternalError(f"{event.name} cannot follow in state {state.name}")
    return table[state][event]


@dataclass(frozen=True, slots=True)
class Dial:
    """Start an attempt to connect.

    Its outcome is reported as `connect` or `refuse`.
    """


@dataclass(frozen=True, slots=True)
class Begin:
    """Note the connection's first offset and hand over a second descriptor."""

    start: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send a part of the views, and report how much.

    Flush if there are none.
    """

    views: Sequence[memoryview]


@dataclass(frozen=True, slots=True)
class HalfClose:
    """End this side of the connection."""


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection; if abandoned, drop what the kernel still holds."""

    is_abandoned: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """Record changes of the progress, safe from SIGKILL."""

    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Record the place, and report it while a batch is being sent.

    Both may be skipped.
    """

    accepted: int
    acked: int
    is_reported: bool


@dataclass(frozen=True, slots=True)
class Release:
    """Record and sync that batches are never sent again.

    Then notify the committer.
    """

    batch: int
    end: int
    skipped: int
    accepted: int
    acked: int


@dataclass(frozen=True, slots=True)
class Tell:
    """Send the committer a message; `Reports` drops redundant ones."""

    message: Message


Action: TypeAlias = Dial | Begin | Send | HalfClose | Close | Record | Place | Release | Tell
