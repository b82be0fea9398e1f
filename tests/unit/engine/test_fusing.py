"""A fused stage does what its closures do, one by one: what goes on, what fails, and whose fault it
is.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wallaroo
from wallaroo.engine.blocks.keys import tasks_by_group
from wallaroo.engine.blocks.packing import PICKLED
from wallaroo.engine.exchange.exchange import Exchange
from wallaroo.engine.exchange.outputs import (
    emit_by_key,
    emit_collected,
    emit_encoded,
    emit_to_all,
    emit_with_key,
)
from wallaroo.engine.failures.policies import OnError, stop_on_error
from wallaroo.engine.operators.fusing import DEPTH_MAX, FUSED, fused
from wallaroo.engine.operators.interface import Emit, Site
from wallaroo.engine.operators.table import build_operator
from wallaroo.engine.stages.readers import (
    Keyed,
    decode_and_emit,
    decode_keyed,
    emit_events,
)
from wallaroo.engine.stores.keyed_state import KeyedState
from wallaroo.engine.time.stage_time import StageTime
from wallaroo.errors import UserCodeError
from wallaroo.runtime.tasks.busy_workers import _OURS, _place
from wallaroo.steps.kinds import Filter, Peek, Step
from wallaroo.user_code.user_frames import user_frames


class Total:
    def __init__(self) -> None:
        self.value = 0


@wallaroo.computation("halve")
def halve(event: Any) -> Any:
    if event == 13:
        raise ValueError("unlucky")
    return None if event % 5 == 0 else event // 2


@wallaroo.computation_multi("spread")
def spread(event: Any) -> Any:
    if event == 8:
        raise ValueError("not to be spread")
    return (event, None, event + 1) if event % 3 else [event]


def small(event: Any) -> Any:
    if event == 4:
        raise ValueError("neither small nor large")
    return event < 40


def look(event: Any) -> Any:
    if event == 6:
        raise ValueError("cannot look")


@wallaroo.state_computation("sum", state=Total)
def add(event: Any, total: Total) -> Any:
    total.value += event
    if total.value % 7 == 0:
        raise ValueError("seven")
    return total.value if total.value % 2 else None


@wallaroo.state_computation_multi("sums", state=Total)
def add_all(event: Any, total: Total) -> Any:
    total.value += event
    return [event, total.value]


@wallaroo.state_computation("sum with context", state=Total)
def add_with_context(event: Any, total: Total, context: wallaroo.Context) -> Any:
    total.value += event
    if total.value > 50:
        context.drop_state()
    return total.value


@wallaroo.decoder(header_length=4, length_fmt=">I")
def number(payload: bytes) -> Any:
    return None if payload == b"none" else int(payload)


@wallaroo.encoder("text")
def text(event: Any) -> Any:
    if event == 3:
        raise ValueError("no three")
    return None if event == 2 else [b"%d" % event, str(event)][event % 2]


@wallaroo.key_extractor("parity")
def parity(event: Any) -> Any:
    if event == 9:
        raise ValueError("no nine")
    return "even" if event % 2 == 0 else event


STEPS: tuple[Step, ...] = (
    halve,
    spread,
    Filter(small, "small"),
    Peek(look, "look"),
    add,
    add_all,
    add_with_context,
)
Exit = Callable[["Bench"], Emit]


class Bench:
    """What a stage works with, and what comes out of it."""

    def __init__(self) -> None:
        self.outputs: list[bytes] = []
        self.more: list[bytes] = []
        self.failures: list[Any] = []
        self.states: dict[str, KeyedState] = {}
        self.exchange = Exchange(1, 0, 0, tasks_by_group(2, 8), PICKLED)

    def policy(self, step: Step) -> OnError:
        def failed(event: Any, error: BaseException, key: Any) -> None:
            self.failures.append((step.step_name, event, str(error), key))

        return failed

    def state(self, step: Step) -> KeyedState:
        if step.step_name not in self.states:
            self.states[step.step_name] = KeyedState(step, lambda key: None, PICKLED)
        return self.states[step.step_name]

    def seen(self) -> Any:
        return (
            self.outputs,
            self.more,
            self.failures,
            [block[1:] for block in self.exchange.drain(0, 1)],
            [list(state.changes()) for state in self.states.values()],
        )


def chain(bench: Bench, steps: tuple[Step, ...], leave: Exit) -> Emit:
    emit = leave(bench)
    for step in reversed(steps):
        site = Site(emit, bench.policy(step), bench.state, StageTime())
        emit = build_operator(step, site).process
    return emit


EXITS: tuple[Exit, ...] = (
    lambda bench: emit_encoded(text, bench.outputs, bench.policy(text)),
    lambda bench: emit_by_key(parity, bench.exchange, bench.policy(parity), bench.policy(text)),
    lambda bench: emit_with_key(bench.exchange, bench.policy(text)),
    lambda bench: emit_collected("all", bench.exchange, bench.policy(text)),
    lambda bench: emit_to_all(
        [
            emit_encoded(text, bench.outputs, bench.policy(text)),
            emit_encoded(text, bench.more, bench.policy(text)),
        ]
    ),
)


@given(
    steps=st.lists(st.sampled_from(STEPS), max_size=6, unique=True),
    leave=st.sampled_from(EXITS),
    payloads=st.lists(
        st.one_of(st.just(b"none"), st.just(b"x"), st.integers(0, 60).map(lambda n: b"%d" % n)),
        max_size=12,
    ),
)
def test_a_fused_stage_does_what_its_closures_do(
    steps: list[Step], leave: Exit, payloads: list[bytes]
) -> None:
    """Any steps, any exit, any events: the same outputs, blocks, states and failures."""
    plain, quick = Bench(), Bench()
    keys = [f"key {place % 3}" for place in range(len(payloads))]

    decode_keyed(number, chain(plain, tuple(steps), leave), plain.policy(number))(keys, payloads)
    head = decode_keyed(number, chain(quick, tuple(steps), leave), quick.policy(number))
    made = fused(head)
    made(keys, payloads)

    assert made is not head
    assert quick.seen() == plain.seen()


def _head(emit: Emit) -> Keyed:
    return fused(emit_events(emit))


def test_a_chain_of_any_length_is_fused_piece_by_piece() -> None:
    """Python bounds how deep blocks lie in each other; what is beyond is called."""
    steps = (halve,) * (3 * DEPTH_MAX)
    bench = Bench()
    head = fused(decode_and_emit(number, chain(bench, steps, EXITS[0]), bench.policy(number)))

    head([b"%d" % (1 << 60)])

    assert bench.outputs == [b"%d" % ((1 << 60) >> len(steps))]


def test_what_is_no_closure_of_this_package_is_called() -> None:
    seen: list[Any] = []

    def emit(key: Any, event: Any) -> None:
        seen.append((key, event))

    _head(emit)(["a"], [1])

    assert seen == [("a", 1)]


def test_an_error_names_the_users_line_and_no_line_of_ours() -> None:
    bench = Bench()
    site = Site(EXITS[0](bench), stop_on_error(halve), bench.state, StageTime())
    head = _head(build_operator(halve, site).process)

    with pytest.raises(UserCodeError) as raised:
        head(["k"], [13])

    assert "halve" in str(raised.value)
    assert f"{__file__}:{halve.function.__code__.co_firstlineno + 3}" in str(raised.value)
    assert raised.value.__cause__ is not None
    frames = user_frames(raised.value.__cause__.__traceback__)
    assert [frame.name for frame in frames if FUSED in frame.filename] == []


def test_a_traceback_shows_the_fused_text() -> None:
    """For who looks for an error of ours: the text of the function is there."""

    class Bad(KeyedState):
        def load(self, key: Any) -> Any:
            raise LookupError("no state")

    bench = Bench()
    bench.states["sum"] = Bad(add, lambda key: None, PICKLED)
    head = _head(chain(bench, (add,), EXITS[0]))

    with pytest.raises(LookupError) as raised:
        head(["k"], [1])

    shown = "".join(traceback.format_exception(raised.value))
    assert "load_1(key_0)" in shown


def test_a_stage_that_is_built_again_is_not_compiled_again() -> None:
    first = _head(chain(Bench(), (halve, add), EXITS[0]))
    second = _head(chain(Bench(), (halve, add), EXITS[0]))

    assert first is not second
    assert first.__code__ is second.__code__


def test_what_shows_stacks_takes_a_fused_function_for_ours() -> None:
    code = _head(chain(Bench(), (halve,), EXITS[0])).__code__
    task = 'File "/x/wallaroo/runtime/task.py", line 1 in run_level'
    stack = f'File "{code.co_filename}", line 3 in run\n{task}'

    assert _place(f'File "/a/app.py", line 7 in halve\n{stack}') == "/a/app.py:7 in halve()"
    assert any(own in code.co_filename for own in _OURS)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.step_name)
@pytest.mark.parametrize("leave", EXITS[:4], ids=("encoded", "by key", "with key", "collected"))
def test_nothing_of_ours_is_called_between_steps(step: Step, leave: Exit) -> None:
    """An operator that cannot be put in the place of its call works as well, and is slower."""
    made = _head(chain(Bench(), (step,), leave))

    assert [
        name for name in made.__code__.co_freevars if name.startswith(("emit", "process"))
    ] == []
