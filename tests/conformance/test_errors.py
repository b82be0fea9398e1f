"""A user's mistake ends the run, on every runner, with the step, the place, the event and the
exception.
"""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.apps import failing
from wallaroo.errors import UserCodeError

SOURCE = Path(failing.__file__)
STEPS = ("decode", "compute", "compute multi", "extract", "state", "state multi", "encode")


def place_of(step: str) -> str:
    """Where the line is that fails."""
    lines = SOURCE.read_text().split("\n")
    marked = (number for number, line in enumerate(lines, 1) if line.endswith(f"# {step} fails"))
    return f"{SOURCE}:{next(marked)}"


def failure(runner: Any, build: Any, *lines: bytes) -> UserCodeError:
    with pytest.raises(UserCodeError) as caught:
        runner(build, {"in": lines})
    assert type(pickle.loads(pickle.dumps(caught.value))) is UserCodeError
    return caught.value


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_raises_is_named_with_its_line_and_event(step: str, runner: Any) -> None:
    error = failure(runner, failing.every_kind, b"fine", b"fail %s." % step.encode(), b"fine")

    assert error.step == step
    assert error.cause == f"ValueError: asked to fail in {step}"
    in_the_function_called = f"{SOURCE}:{_line_of('raise ValueError')}"
    assert error.place in (place_of(step), in_the_function_called)
    assert place_of(step).rpartition(":")[2] in error.trace
    if step == "decode":
        assert error.event.startswith("frame of 12 bytes: fail decode.")
    else:
        assert error.event.startswith(f"'fail {step}.'")


@pytest.mark.parametrize("step", ["decode", "extract", "state", "encode"])
def test_a_step_that_calls_sys_exit_is_named_like_one_that_raises(step: str, runner: Any) -> None:
    error = failure(runner, failing.every_kind, b"fine", b"exit %s." % step.encode(), b"fine")

    assert (error.step, error.cause) == (step, "SystemExit: 3")
    assert error.place in (place_of(step), f"{SOURCE}:{_line_of('sys.exit(3)')}")
    shown = "exit decode." if step == "decode" else f"'exit {step}.'"
    assert shown in error.event


def _line_of(text: str) -> int:
    return 1 + next(
        number for number, line in enumerate(SOURCE.read_text().split("\n")) if text in line
    )


@pytest.mark.parametrize(
    ("line", "step", "cause"),
    [
        (
            b"number instead of a list",
            "compute multi",
            "TypeError: a multi computation must return a list, not int",
        ),
        (
            b"float key",
            "extract",
            "TypeError: a key must be str, bytes, int, or a tuple of these, not float",
        ),
        (
            b"list key",
            "extract",
            "TypeError: a key must be str, bytes, int, or a tuple of these, not list",
        ),
        (
            b"number instead of bytes",
            "encode",
            "TypeError: an encoder must return bytes or str, not int",
        ),
    ],
    ids=["multi", "float key", "list key", "encoder"],
)
def test_a_result_of_the_wrong_type_is_the_steps_mistake(
    line: bytes, step: str, cause: str, runner: Any
) -> None:
    error = failure(runner, failing.every_kind, b"fine", line)

    assert (error.step, error.cause) == (step, cause)
    assert error.place.startswith(f"{SOURCE}:")


def test_state_that_cannot_be_stored_names_the_step_and_the_key(runner: Any) -> None:
    error = failure(runner, failing.every_kind, b"fine", b"state that cannot be stored")

    assert error.step == "state"
    assert error.event == (
        "state of key 'state that cannot be stored'; attribute 'kept' is the function "
        "state.<locals>.<lambda>, which cannot be pickled. Keep only picklable values in the state"
    )
    assert "pickle" in error.cause


def test_an_event_that_cannot_cross_a_shuffle_names_the_step_that_made_it(runner: Any) -> None:
    error = failure(runner, failing.unpacked_events, b"fine", b"unpacked", b"fine")

    assert error.step == "make what cannot travel"
    assert "function untravelled" in error.event
    assert "pickle" in error.cause


def test_an_output_of_state_that_cannot_cross_a_shuffle_names_the_state_step(runner: Any) -> None:
    error = failure(runner, failing.unpacked_outputs_of_state, b"fine", b"unpacked")

    assert error.step == "second"
    assert "pickle" in error.cause


@pytest.mark.parametrize("before", [b"int key", b"fine"])
def test_a_key_that_equals_a_number_is_refused_whatever_came_before(
    before: bytes, runner: Any
) -> None:
    error = failure(runner, failing.every_kind, before, b"float key that equals an int")

    assert error.step == "extract"
    assert error.fix.startswith("Return one that does: str(key) of a decimal")
    assert error.cause == "TypeError: a key must be str, bytes, int, or a tuple of these, not float"


@pytest.mark.parametrize(
    ("line", "is_collected"), [(b"thing", False), (b"generator", False), (b"thing", True)]
)
def test_an_object_without_text_is_not_written_to_a_sink_without_encoder(
    line: bytes, is_collected: bool, runner: Any
) -> None:
    build = partial(failing.no_text, is_collected=is_collected)
    error = failure(runner, build, b"fine", line)

    assert error.step == "make a thing"
    assert error.place.startswith(f"{SOURCE}:")
    assert "no text, to a sink without an encoder; give the sink an encoder" in error.cause
