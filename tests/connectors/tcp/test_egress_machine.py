"""The egress's state machine: every transition, and what it decides, without a socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.connectors.tcp.machine_world import World
from wallaroo.connectors.tcp.egress.ending import QUIET_S, STALLED_S
from wallaroo.connectors.tcp.egress.machine import (
    ACK_POLL_S,
    IDLE_POLL_S,
    RELEASE_S,
    RETRY_S,
)
from wallaroo.connectors.tcp.egress.states import (
    COMMITTER,
    CONNECTION,
    Close,
    Committer,
    Dial,
    Event,
    HalfClose,
    Place,
    ReceiverState,
    Release,
    Send,
    State,
    Tell,
    step,
)
from wallaroo.connectors.tcp.pipe import GREETING, OFFSET
from wallaroo.errors import InternalError

Step = Callable[[World], None]


def world_of(*sizes: int, is_resuming: bool = False) -> World:
    """A world whose first batch has outputs of these sizes and is handed over."""
    world = World(is_resuming)
    world.commit(sizes)
    world.hand_all_over()
    world.settle()
    return world


def connected(*sizes: int) -> World:
    world = world_of(*sizes)
    world.answer()
    return world


def sending(*sizes: int, room: int = 3) -> World:
    world = connected(*sizes)
    world.write(room)
    world.settle()
    return world


def greeting(*sizes: int) -> World:
    world = world_of(*sizes, is_resuming=True)
    world.answer()
    return world


def finishing() -> World:
    """A world that was asked to end inside an output."""
    world = sending(5, 5)
    close(world)
    return world


def draining() -> World:
    world = finishing()
    world.write()
    world.settle()
    return world


def inherited(is_ended: bool) -> World:
    """A world whose egress was killed, with a connection to take over."""
    world = draining() if is_ended else sending(5, 5)
    world.crash(is_taken_over=True)
    return world


def close(world: World) -> None:
    world.tell({"close": True})
    world.settle()


def messages(world: World) -> list[object]:
    return [action.message for action in world.done if isinstance(action, Tell)]


def reasons(world: World) -> Iterator[str]:
    return (str(one["waiting"]) for one in messages(world) if "waiting" in one)  # type: ignore


WALKS: dict[tuple[State, Event], tuple[Callable[[], World], Step]] = {
    (State.DISCONNECTED, Event.DIAL): (lambda: World(), World.hand_all_over),
    (State.DISCONNECTED, Event.TAKE_OVER): (lambda: inherited(False), lambda world: None),
    (State.DISCONNECTED, Event.TAKE_OVER_ENDED): (lambda: inherited(True), lambda world: None),
    (State.DISCONNECTED, Event.EXIT): (lambda: World(), close),
    (State.CONNECTING, Event.REFUSE): (
        lambda: world_of(5),
        lambda world: world.answer("Connection refused"),
    ),
    (State.CONNECTING, Event.CONNECT): (lambda: world_of(5), World.answer),
    (State.CONNECTING, Event.GREET): (lambda: world_of(5, is_resuming=True), World.answer),
    (State.CONNECTING, Event.EXIT): (lambda: world_of(5), close),
    (State.GREETING, Event.BEGIN): (lambda: greeting(5), World.report),
    (State.GREETING, Event.LEAVE): (lambda: greeting(5), World.break_off),
    (State.CONNECTED, Event.BEGIN): (lambda: connected(5), World.write),
    (State.CONNECTED, Event.LEAVE): (lambda: connected(5), World.break_off),
    (State.SENDING, Event.FINISH): (lambda: sending(5, 5), close),
    (State.SENDING, Event.LEAVE): (lambda: sending(5, 5), World.break_off),
    (State.FINISHING, Event.END): (finishing, World.write),
    (State.FINISHING, Event.LEAVE): (finishing, World.break_off),
    (State.DRAINING, Event.LEAVE): (draining, World.break_off),
}


@pytest.mark.parametrize(("state", "event"), WALKS, ids=lambda one: one.name)
def test_each_transition_of_the_table_is_walked_and_acts(state: State, event: Event) -> None:
    begin, act = WALKS[state, event]
    world = begin()
    if "TAKE_OVER" not in event.name:  # these come before anything else
        assert world.machine.state is state

    act(world)
    if event in (Event.DIAL, Event.END):
        world.settle()

    assert world.machine.state is CONNECTION[state][event]


def test_no_transition_is_left_out_and_every_state_is_reached() -> None:
    table = {(state, event) for state, row in CONNECTION.items() for event in row}
    assert table == set(WALKS)
    reached = {after for row in CONNECTION.values() for after in row.values()}
    assert reached == set(State)
    assert {after for row in COMMITTER.values() for after in row.values()} == {
        Committer.SUPPLYING,
        Committer.CLOSED,
    }


def test_an_event_that_the_state_does_not_know_is_an_error_of_the_machine() -> None:
    world = World()
    with pytest.raises(InternalError, match="REFUSE cannot follow in state DISCONNECTED"):
        world.machine.refuse("Connection refused", 0.0)
    with pytest.raises(InternalError, match="START cannot follow in state SUPPLYING"):
        step(COMMITTER, Committer.SUPPLYING, Event.START)


# -- connecting


def test_nothing_is_dialed_before_the_committer_has_handed_over_what_is_left() -> None:
    world = World()
    world.commit([5])
    world.to_hand.reverse()  # the batch, then the start
    world.hand_over()
    world.settle(seconds=10.0)
    assert not world.is_dialing
    world.hand_over()
    world.settle()
    assert world.is_dialing


def test_a_refused_attempt_is_named_and_repeated_after_the_time_for_that() -> None:
    world = world_of(5)
    world.answer("Connection refused")
    assert list(reasons(world)) == ["there:9 (connection refused)"]
    assert world.machine.timeout_s(world.now) == RETRY_S
    world.settle(seconds=RETRY_S * 0.9)
    assert not world.is_dialing
    world.settle(seconds=RETRY_S * 0.2)
    assert world.is_dialing


def test_a_connection_that_was_sent_on_is_replaced_at_once_one_that_was_not_later() -> None:
    used = sending(5, 5)
    used.break_off()
    used.settle()
    unused = connected(5)
    unused.break_off()
    unused.settle()
    assert used.is_dialing
    assert not unused.is_dialing


# -- repeating


def test_a_new_connection_repeats_the_output_that_was_not_acknowledged_whole() -> None:
    world = sending(4, 4, 4, room=10)
    world.acknowledge(6)
    world.break_off()
    world.settle()
    world.answer()
    world.write()
    assert world.link is not None
    assert (world.link.start, world.link.position) == (4, 12)


def test_a_taken_over_connection_that_breaks_before_its_batches_are_known_loses_nothing() -> None:
    """What its kernel had accepted and not delivered is sent again."""
    world = sending(4, 4, 4, room=10)
    world.acknowledge(6)
    world.crash(is_taken_over=True)
    world.break_off()
    world.hand_all_over()
    world.settle()
    world.answer()
    world.write()
    assert world.link is not None
    assert (world.link.start, world.link.position) == (4, 12)


def test_a_taken_over_connection_continues_inside_an_output() -> None:
    world = sending(5, 5, room=3)
    world.crash(is_taken_over=True)
    world.hand_all_over()
    world.write()
    assert world.link is not None
    assert (world.link.start, world.link.position) == (0, 10)


def test_a_batch_that_is_handed_over_again_is_answered_with_what_is_known_of_it() -> None:
    world = sending(5, room=5)
    world.acknowledge()
    world.settle()
    batch = world.batches[0]
    world.tell({"commit": batch.to_json(), "end": batch.end})
    assert messages(world)[-1] == {"released": 0, "accepted": 5}


# -- releasing


def test_a_batch_is_released_when_it_is_acknowledged_and_no_more_often_than_is_worth_a_sync() -> (
    None
):
    world = connected(4)
    for _ in range(3):
        world.write()
        world.acknowledge()
        world.settle()
        world.commit([4])
        world.hand_all_over()
    releases = [action.batch for action in world.done if isinstance(action, Release)]
    assert releases == [0]
    assert world.machine.timeout_s(world.now) == RELEASE_S
    world.settle(seconds=RELEASE_S)
    assert world.progress.released_batch == 2


def test_an_output_that_the_kernel_has_not_acknowledged_is_not_released() -> None:
    world = sending(4, room=4)
    world.acknowledge(3)
    world.settle(seconds=10.0)
    assert world.progress.released_batch == -1
    assert world.machine.timeout_s(world.now) == ACK_POLL_S


def test_where_the_kernel_does_not_count_accepted_output_is_released() -> None:
    world = sending(4, room=4)
    actions = world.machine.settle(1.0, None)
    assert [action.end for action in actions if isinstance(action, Release)] == [4]


@pytest.mark.parametrize("has_reported", [False, True])
def test_a_silent_resuming_receiver_costs_no_turns(has_reported: bool) -> None:
    """Only its next message can release anything, and that wakes the loop."""
    world = greeting(4)
    if has_reported:
        world.report()
        world.write()
    world.settle(seconds=10.0)
    assert world.machine.timeout_s(world.now) == IDLE_POLL_S


# -- what a receiver writes


def test_a_plain_receiver_that_only_stops_writing_gets_the_rest() -> None:
    world = sending(4, 4, room=2)
    world.reply(b"")
    assert world.machine.receiver is ReceiverState.ENDED
    world.write()
    assert world.link is not None
    assert world.link.position == 8


def test_a_receiver_that_ends_an_uncounted_connection_is_lost() -> None:
    world = sending(4, 4, room=2)
    world.do(world.machine.receive(b"", None, world.now))
    assert world.machine.state is State.DISCONNECTED
    assert next(reversed(list(reasons(world)))) == "there:9 (connection closed by the receiver)"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (b"HTTP/1.1", "does not speak the resume protocol"),
        (GREETING + OFFSET.pack(99), "the receiver has 99 bytes, this outbox holds 0 to 5"),
    ],
)
def test_a_receiver_that_cannot_resume_is_left_and_named(words: bytes, reason: str) -> None:
    world = greeting(5)
    world.reply(words)
    assert world.machine.state is State.DISCONNECTED
    assert reason in list(reasons(world))[-1]


def test_a_resuming_receiver_has_to_give_up_what_was_skipped_once() -> None:
    world = World(is_resuming=True)
    world.commit([5])
    world.commit([], skipped_bytes=8)
    world.commit([5])
    world.hand_all_over()
    world.settle()
    world.answer()
    world.received = world.stream[:6]
    world.report()
    assert "cut what it holds to 5 bytes" in list(reasons(world))[-1]
    world.received = world.stream[:5]
    for _ in range(2):  # once it has agreed, it may have more
        world.settle(seconds=1.0)
        world.answer()
        world.report()
        world.write()
        world.acknowledge()
        world.break_off()
    world.finish()
    assert (world.received, world.progress.skipped) == (world.stream, 8)


# -- the end


def test_an_end_finishes_the_output_in_hand_and_nothing_more() -> None:
    world = finishing()
    assert world.machine.has_output
    world.write()
    world.settle()
    assert world.link is not None
    assert (world.link.position, world.link.is_ended) == (5, True)
    assert world.machine.state is State.DRAINING


def test_output_that_tls_still_holds_delays_the_end_of_this_side() -> None:
    world = finishing()
    world.write()
    actions = world.machine.settle(world.now, 0, has_rest=True)
    assert HalfClose() not in actions
    assert world.machine.state is State.FINISHING


def test_the_egress_exits_when_the_receiver_has_everything_and_ends_its_side() -> None:
    world = draining()
    world.acknowledge()
    world.settle()
    assert world.machine.state is State.DRAINING
    world.reply(b"")
    world.settle()
    assert world.machine.state is State.DONE
    assert {"ending": [0, 5]} in messages(world)
    assert {"lost": "ended"} in messages(world)


@pytest.mark.parametrize(
    ("is_acknowledged", "bound", "is_abandoned"), [(True, QUIET_S, False), (False, STALLED_S, True)]
)
def test_a_receiver_that_never_ends_is_left_after_its_bound(
    is_acknowledged: bool, bound: float, is_abandoned: bool
) -> None:
    """What it has not acknowledged is dropped from the connection: the next run sends it."""
    world = draining()
    if is_acknowledged:
        world.acknowledge()
    world.settle()
    world.settle(seconds=bound * 0.99)
    assert world.machine.state is State.DRAINING
    world.settle(seconds=bound * 0.02)
    assert Close(is_abandoned) in world.done
    assert world.machine.state is State.DONE


def test_an_error_of_a_draining_connection_ends_it_at_once() -> None:
    world = draining()
    world.settle(error="Broken pipe")
    assert {"lost": "Broken pipe"} in messages(world)
    assert world.machine.state is State.DONE


def test_an_idle_egress_does_nothing_but_wait() -> None:
    world = World()
    world.settle()
    assert world.done == [Place(0, 0, False)]
    assert not any(isinstance(action, Dial | Send) for action in world.done)
    assert world.machine.timeout_s(world.now) == IDLE_POLL_S
    world.tell({"ping": True})
    assert messages(world) == [{"alive": True}]
