"""The decorators: both spellings, names, and the function behind the step."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import pytest

import wallaroo
from tests.unit.dataflow.check import checked_steps as given


class State:
    pass


def double(number: int) -> int:
    return 2 * number


def twice(number: int) -> list[int]:
    return [number, number]


def remember(number: int, state: State) -> int:
    return number


@pytest.mark.parametrize(
    "decorator",
    [wallaroo.computation, wallaroo.computation_multi, wallaroo.key_extractor, wallaroo.encoder],
)
def test_decorators_work_with_and_without_parentheses_and_take_the_functions_name(
    decorator: Any,
) -> None:
    assert decorator(double).name() == "double"
    assert decorator()(double).name() == "double"
    assert decorator("by position")(double).name() == "by position"
    assert decorator(name="by keyword")(double).name() == "by keyword"


def test_a_decoder_has_a_four_byte_header_by_default() -> None:
    for decoder in (wallaroo.decoder(bytes.decode), wallaroo.decoder()(bytes.decode)):
        assert (decoder.header_length(), decoder.length_fmt, decoder.name()) == (4, ">I", "decode")
    assert (
        wallaroo.decoder(header_length=2, length_fmt=">H")(bytes.decode).payload_length(b"\x01\x02")
        == 258
    )
    assert wallaroo.decoder(8, ">Q", "long")(bytes.decode).name() == "long"


@pytest.mark.parametrize("decorator", [wallaroo.decoder, wallaroo.batch_decoder])
def test_a_decoder_of_a_function_has_the_options_beside_it(decorator: Any) -> None:
    made = decorator(double, ">H", "by position", on_error="skip")
    assert (made.length_fmt, made.name(), made.on_error) == (">H", "by position", "skip")
    with pytest.raises(wallaroo.WallarooParameterError, match="on_error='bogus' is unknown"):
        decorator(double, on_error="bogus")


def test_a_decoder_of_a_function_may_be_pure() -> None:
    made = wallaroo.decoder(double, pure=True, key_at=slice(0, 1))  # type: ignore[call-overload]  # at run time
    assert (made.is_pure, made.key_place) == (True, (0, 1))


def test_state_computations_know_their_class() -> None:
    step = wallaroo.state_computation("remember it", State)(remember)
    assert (step.name(), type(step.initial_state())) == ("remember it", State)
    assert wallaroo.state_computation(state=State)(remember).name() == "remember"
    multi: Any = wallaroo.state_computation_multi(name="m", state=State)(
        lambda number, state: [number]
    )
    assert multi.compute_multi(3, State()) == [3]


def test_bases_are_as_in_wallaroo() -> None:
    assert isinstance(given.decode, wallaroo.OctetDecoder)
    assert isinstance(given.encode, wallaroo.OctetEncoder)
    assert isinstance(given.count, wallaroo.StateComputation)
    assert (given.count.is_stateful, given.shout.is_stateful) == (True, False)


def test_a_step_called_without_arguments_is_itself_and_with_arguments_the_function() -> None:
    assert given.shout() is given.shout
    assert given.shout("a") == given.shout.compute("a") == "A"


@pytest.mark.parametrize(
    "step", [given.decode, given.encode, given.shout, given.first_letter, given.count]
)
def test_a_pickled_step_comes_back_as_the_very_same_step(step: wallaroo.Step) -> None:
    assert pickle.loads(pickle.dumps(step)) is step


def test_callables_that_are_no_functions_are_accepted() -> None:
    assert wallaroo.computation("partial")(functools.partial(pow, 2)).compute(5) == 32


@pytest.mark.parametrize(
    "decorator",
    [
        wallaroo.computation(),
        wallaroo.state_computation("s", State),
        wallaroo.decoder(),
        wallaroo.encoder("e"),
    ],
)
def test_what_is_not_callable_is_rejected_at_once(decorator: Any) -> None:
    with pytest.raises(
        wallaroo.WallarooParameterError, match=r"expected a function, got 7.*"
    ) as raised:
        decorator(7)
    assert raised.value.problems[0].place.startswith(__file__)


def test_a_name_that_is_no_string_is_rejected_at_once() -> None:
    wrong: Any = 5
    with pytest.raises(wallaroo.WallarooParameterError, match="@computation"):
        wallaroo.computation(wrong)


def test_a_state_computation_without_a_class_is_rejected_at_once() -> None:
    wrong: Any = remember
    with pytest.raises(
        wallaroo.WallarooParameterError, match=r"@state_computation .*needs the state's class"
    ):
        wallaroo.state_computation(wrong)
