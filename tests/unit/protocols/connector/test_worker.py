"""The worker's end of a source connection: every frame in every state, credits, dedup,
ownership.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallaroo.protocols.connector.frames import (
    NO_POINT,
    Ack,
    EndOfStream,
    Error,
    Frame,
    FrameSplitter,
    Hello,
    Message,
    Notify,
    NotifyAck,
    Ok,
    Restart,
    decode,
    encode,
)
from wallaroo.protocols.connector.worker import (
    Ended,
    Event,
    SourceSession,
    State,
    Streams,
    Taken,
)

HELLO = Hello(b"0.0.1", b"cookie", b"feeder", b"1")
NOTIFY = Notify(7, b"seven", 0)


def session(
    streams: Streams | None = None, credits_max: int = 10, refill: int = 3
) -> SourceSession:
    return SourceSession(streams or Streams(), b"cookie", credits_max, refill)


def say(to: SourceSession, *frames: Frame) -> list[Event]:
    return to.feed(b"".join(map(encode, frames)))


def answers(of: SourceSession) -> list[Frame]:
    return [decode(content) for content in FrameSplitter().feed(of.data_to_send())]


def message(number: int, payload: bytes = b"x", stream: int = 7) -> Message:
    return Message(stream, number, 0, b"k", payload)


def streaming(streams: Streams | None = None, **changes: int) -> SourceSession:
    """A session with stream 7 open; what was answered so far is taken."""
    opened = session(streams, **changes)
    say(opened, HELLO, NOTIFY)
    answers(opened)
    return opened


ANY_FRAME: dict[str, Frame] = {
    "HELLO": HELLO,
    "OK": Ok(1),
    "ERROR": Error(b"trouble"),
    "NOTIFY": NOTIFY,
    "NOTIFY_ACK": NotifyAck(True, 7, 0),
    "MESSAGE": message(1),
    "ACK": Ack(1),
    "RESTART": Restart(),
    "EOS": EndOfStream(7),
}
# what a connection's state becomes; every pair that is not here fails the connection
NEXT: dict[tuple[State, str], State] = {
    (State.CONNECTED, "HELLO"): State.STREAMING,
    (State.STREAMING, "NOTIFY"): State.STREAMING,
    (State.STREAMING, "MESSAGE"): State.STREAMING,
    (State.STREAMING, "EOS"): State.STREAMING,
    (State.CLOSED, "HELLO"): State.CLOSED,
}


@pytest.mark.parametrize("name", ANY_FRAME)
@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
def test_every_frame_in_every_state(state: State, name: str) -> None:
    subject = session() if state is State.CONNECTED else streaming()
    if state is State.FAILED:
        say(subject, Ok(1))
        answers(subject)
    elif state is State.CLOSED:
        subject.close()

    events = say(subject, ANY_FRAME[name])

    if state in (State.FAILED, State.CLOSED):
        assert (events, answers(subject), subject.state) == ([], [], state)
        return
    wanted = NEXT.get((state, name), State.FAILED)
    assert subject.state is wanted
    if wanted is State.FAILED:
        assert events == []
        answered = answers(subject)
        if name == "ERROR":
            assert (answered, subject.failure) == ([], "the client reports: trouble")
        else:
            assert isinstance(answered[-1], Error)


def test_a_client_is_welcomed_with_its_credits() -> None:
    subject = session(credits_max=77)

    say(subject, HELLO)

    assert answers(subject) == [Ok(77)]
    assert subject.program == "feeder 1"


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (Hello(b"9", b"cookie", b"", b""), b"unknown protocol version '9'"),
        (Hello(b"0.0.1", b"other", b"", b""), b"the cookie is not this source's"),
    ],
)
def test_a_client_that_does_not_fit_is_turned_away_with_the_reason(
    hello: Hello, reason: bytes
) -> None:
    subject = session()

    say(subject, hello)

    assert (answers(subject), subject.state) == ([Error(reason)], State.FAILED)


def test_a_new_stream_begins_without_a_point_and_a_known_one_after_its_last_message() -> None:
    streams = Streams()
    first = session(streams)
    say(first, HELLO, NOTIFY, message(4))
    first.close()
    second = session(streams)

    say(second, HELLO, NOTIFY)

    assert answers(first)[1] == NotifyAck(True, 7, NO_POINT)
    assert answers(second)[1] == NotifyAck(True, 7, 4)


def test_messages_with_ids_that_were_seen_are_dropped_silently() -> None:
    subject = streaming()

    events = say(subject, *(message(number) for number in (1, 2, 2, 1, 5, 3, 6)))

    assert [event.id for event in events if isinstance(event, Taken)] == [1, 2, 5, 6]


def test_message_id_zero_is_taken_once() -> None:
    events = say(streaming(), message(0), message(0))

    assert [event.id for event in events if isinstance(event, Taken)] == [0]


def test_a_message_of_a_stream_that_is_not_open_fails_the_connection() -> None:
    subject = streaming()

    events = say(subject, message(1, stream=8), message(2))

    assert events == []
    assert b"stream 8, which is not open" in answers(subject)[0].reason  # type: ignore[union-attr]


def test_a_stream_has_one_owner_until_that_connection_has_gone() -> None:
    streams = Streams()
    owner, other = streaming(streams), session(streams)

    say(other, HELLO, NOTIFY)
    refused = answers(other)[1]
    owner.close()
    say(other, NOTIFY)

    assert refused == NotifyAck(False, 7, 0)
    assert answers(other) == [NotifyAck(True, 7, NO_POINT)]


def test_two_streams_cannot_share_an_id() -> None:
    subject = streaming()

    say(subject, Notify(7, b"another name", 0))

    assert answers(subject) == [NotifyAck(False, 7, 0)]


def test_credits_are_spent_by_every_frame_and_refilled_at_the_mark() -> None:
    subject = session(credits_max=10, refill=3)
    say(subject, HELLO, NOTIFY, *(message(number) for number in range(5)))  # six of ten
    before = answers(subject)

    say(subject, message(6))

    assert not any(isinstance(frame, Ack) for frame in before)
    assert answers(subject) == [Ack(7)]


def test_a_client_that_sends_without_a_credit_fails() -> None:
    subject = session(credits_max=2, refill=0)

    events = say(subject, HELLO, NOTIFY, message(1), message(2))

    assert [event.id for event in events if isinstance(event, Taken)] == [1]
    assert answers(subject)[-1] == Error(b"a message was sent without a credit")


def test_only_what_the_host_says_is_acknowledged() -> None:
    subject = streaming()
    say(subject, message(1), message(2))
    subject.flush()
    silent = answers(subject)

    subject.acknowledge(7, 1)
    subject.flush()

    assert silent == []
    assert answers(subject) == [Ack(3, ((7, 1),))]  # with the credits of NOTIFY and two messages


def test_the_end_of_a_stream_is_acknowledged_and_the_stream_can_be_opened_again() -> None:
    streams = Streams()
    subject, other = streaming(streams), session(streams)
    events = say(subject, message(3), EndOfStream(7))
    subject.acknowledge(7, 3)
    subject.flush()

    say(other, HELLO, NOTIFY)

    assert events[-1] == Ended(7, 3)
    assert answers(subject) == [Ack(3, ((7, 3),))]
    assert answers(other)[1] == NotifyAck(True, 7, 3)


def test_a_restart_sends_the_client_elsewhere_and_frees_its_streams() -> None:
    streams = Streams()
    subject = streaming(streams)

    subject.restart(b"host:1")

    assert (answers(subject), subject.state) == ([Restart(b"host:1")], State.CLOSED)
    assert streams.by_id[7].owner is None


def test_credits_have_to_make_sense() -> None:
    with pytest.raises(ValueError, match="refill_credits is 5; it has to be below max_credits=5"):
        SourceSession(Streams(), b"", 5, 5)


@given(data=st.binary(max_size=300), cut=st.integers(0, 300), is_streaming=st.booleans())
def test_no_bytes_raise_and_what_is_wrong_is_answered_once(
    data: bytes, cut: int, is_streaming: bool
) -> None:
    subject = streaming() if is_streaming else session()

    subject.feed(data[:cut])
    subject.feed(data[cut:])

    assert sum(isinstance(frame, Error) for frame in answers(subject)) <= 1


@given(runs=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12)), min_size=1, max_size=8))
def test_a_client_that_rewinds_as_it_likes_delivers_every_message_once(
    runs: list[tuple[int, int]],
) -> None:
    """Each run is a connection that begins at an id at or before the one it was given, and then
    dies.
    """
    streams, taken = Streams(), list[int]()
    reached = 0
    for back, count in runs:
        connection = SourceSession(streams, b"", 1000, 0)
        say(connection, Hello(b"0.0.1", b"", b"", b""), NOTIFY)
        start = max(0, reached - back)
        events = say(connection, *(message(number) for number in range(start, reached + count)))
        taken += [event.id for event in events if isinstance(event, Taken)]
        reached += count
        connection.close()

    assert taken == list(range(reached))


def test_streams_are_announced_on_credit_and_the_debt_is_paid_back() -> None:
    subject = session(credits_max=2, refill=0)

    say(subject, HELLO, *[Notify(number, b"%d" % number, 0) for number in range(5)])

    assert answers(subject)[-1] == Ack(5, ())
    assert subject.state is State.STREAMING


def test_the_end_of_a_stream_may_be_free_for_the_client() -> None:
    """It counts its credits as Wallaroo's does: one is left to it here, and none to the worker."""
    streams = Streams()
    subject = streaming(streams, credits_max=4, refill=0)
    say(subject, Notify(8, b"eight", 0))
    subject.pause()

    say(subject, EndOfStream(8), message(1))
    events = say(subject, message(2))

    assert [event.id for event in events if isinstance(event, Taken)] == [2]
    assert subject.state is State.STREAMING
    say(subject, message(3))
    assert subject.failure == "a message was sent without a credit"


def test_credits_are_held_back_while_it_is_paused_but_acknowledgements_are_sent() -> None:
    subject = streaming(credits_max=5, refill=4)
    subject.pause()

    say(subject, message(1))
    subject.acknowledge(7, 1)
    subject.flush()

    assert answers(subject) == [Ack(0, ((7, 1),))]
    subject.resume()
    assert answers(subject) == [Ack(1, ())]


def test_a_client_whose_stream_was_refused_gets_an_ack_to_try_again() -> None:
    streams = Streams()
    owner, other = streaming(streams), session(streams)
    say(other, HELLO, NOTIFY)
    answers(other)

    owner.beat()
    other.beat()
    other.beat()

    assert answers(owner) == []
    assert [type(frame) for frame in answers(other)] == [Ack]


def test_an_ended_stream_has_to_be_announced_again() -> None:
    subject, again = streaming(), streaming()

    say(subject, EndOfStream(7), message(1))
    events = say(again, EndOfStream(7), NOTIFY, message(1))

    assert subject.failure == "a message of stream 7, which is not open on this connection"
    assert [event.id for event in events if isinstance(event, Taken)] == [1]
