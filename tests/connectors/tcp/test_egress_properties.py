"""Any course of commits, connections, acknowledgements and deaths keeps the egress's invariants."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.connectors.tcp.machine_world import World
from wallaroo.connectors.tcp.egress.states import ReceiverState, State

# how often each happens in a course, beside the others
WEIGHTS = {
    "proceed": 12,
    "commit": 3,
    "hand over": 1,
    "acknowledge": 4,
    "reply": 3,
    "end of receiver": 1,
    "break": 2,
    "refuse": 1,
    "wait": 2,
    "close": 1,
    "crash": 1,
    "crash and take over": 2,
}
names = st.sampled_from([name for name, weight in WEIGHTS.items() for _ in range(weight)])
courses = st.lists(st.tuples(names, st.integers(1, 9)), min_size=10, max_size=60)


def take(world: World, name: str, number: int) -> None:
    """Let one thing happen, if it can happen now; an egress that has exited has a successor."""
    if world.machine.state is State.DONE:
        world.crash(is_taken_over=False)
    is_writing = world.link is not None and world.machine.receiver is ReceiverState.WRITING
    is_dialing = world.is_dialing and world.machine.state is State.CONNECTING
    if name == "commit":
        world.commit([number % 4, number % 7 + 1])
    elif name == "hand over":
        world.hand_over()
    elif name == "wait":
        assert world.machine.timeout_s(world.now) >= 0.0
        world.settle((0.01, 0.3, 400.0)[number % 3])
    elif name == "close":
        world.tell({"close": True})
    elif name.startswith("crash"):
        world.crash(is_taken_over=name != "crash")
    elif name == "refuse" and is_dialing:
        world.answer("Connection refused")
    elif name == "break" and world.link is not None:
        world.break_off()
    elif name == "acknowledge" and world.link is not None:
        world.acknowledge(number)
    elif name == "reply" and is_writing:
        world.report() if world.is_resuming else world.reply(b"thank you")
    elif name == "end of receiver" and is_writing:
        world.reply(b"")
    elif name == "proceed":
        proceed(world, number)
    world.settle()


def proceed(world: World, number: int) -> None:
    """What would happen next without a disturbance."""
    if world.is_dialing and world.machine.state is State.CONNECTING:
        world.answer()
    elif world.link is not None and world.machine.has_output:
        world.write((number + 2) // 3)  # most outputs take several
    elif world.to_hand:
        world.hand_over()
    elif world.machine.state is State.GREETING and world.machine.receiver is ReceiverState.WRITING:
        world.report()
    elif world.machine.state is State.DISCONNECTED:
        world.settle(1.0)
    else:
        world.commit([number])


@pytest.mark.parametrize("is_resuming", [False, True])
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(course=courses)
def test_any_course_sends_everything_in_order_and_releases_only_what_was_acknowledged(
    is_resuming: bool, course: list[tuple[str, int]]
) -> None:
    """`World` checks each action; at the end everything has got through."""
    world = World(is_resuming)
    world.commit([5, 7])
    world.hand_all_over()
    world.settle()
    for name, number in course:
        take(world, name, number)
    world.finish()
    if is_resuming:
        assert world.received == world.stream
