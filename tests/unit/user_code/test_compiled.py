"""Facts that the compiled code of users' functions shows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from wallaroo.user_code.compiled import (
    attributes_used,
    never_returns_a_value,
    returns_nothing,
)

FORGOTTEN = {
    "nothing": "pass",
    "an early return": "if event: return\n    print(event)",
    "None in both ways": "if event: return None\n    else: return None",
    "a with": "with manager(): print(event)",
    "a loop with try": "for each in event:\n        try: print(each)\n"
    "        except ValueError: return",
}
MEANT = {
    "a value": "return event",
    "a value in one way": "return event if event else None",
    "a value before finally": "try: return event\n    finally: print(event)",
    "a value in a with": "with manager(): return event",
    "a variable": "found = None\n    return found",
    "False": "return False",
    "an error": "raise ValueError(event)",
    "no end": "while True: print(event)",
    "a generator": "yield event",
}


def compiled(body: str, returns: str = "") -> Callable[..., Any]:
    names: dict[str, Any] = {"manager": contextlib.nullcontext}
    code = compile(f"def function(event){returns}:\n    {body}\n", "a", "exec", dont_inherit=True)
    exec(code, names)
    return names["function"]  # type: ignore[no-any-return]  # just defined


@pytest.mark.parametrize("case", FORGOTTEN)
def test_a_function_without_a_value_to_return_is_recognized(case: str) -> None:
    assert returns_nothing(compiled(FORGOTTEN[case]))


@pytest.mark.parametrize("case", MEANT)
def test_a_function_that_returns_a_value_or_never_ends_is_not(case: str) -> None:
    assert not returns_nothing(compiled(MEANT[case]))


@pytest.mark.parametrize("annotation", [" -> None", " -> 'None'"])
def test_an_annotation_says_that_none_is_meant(annotation: str) -> None:
    assert not returns_nothing(compiled("pass", annotation))
    assert never_returns_a_value(compiled("pass", annotation))


def test_what_has_no_code_of_python_s_returns_something() -> None:
    assert not returns_nothing(print)
    assert not returns_nothing(lambda event: None)


def test_a_lambda_that_only_prints_returns_nothing() -> None:
    assert returns_nothing(lambda event: print(event))
    assert returns_nothing(lambda event: print(event["a"], str(event), sep=" "))
    assert returns_nothing(lambda event: print(*event))


def test_a_lambda_that_prints_and_returns_something_is_not_one() -> None:
    assert not returns_nothing(lambda event: print(event) or event)  # type: ignore[func-returns-value]  # the idiom
    assert not returns_nothing(lambda event: (print(event), event)[1])  # type: ignore[func-returns-value]  # the same
    assert not returns_nothing(lambda event: print(event) is None)  # type: ignore[func-returns-value]  # the same
    assert not returns_nothing(lambda event: print(event) if event else str(event))  # type: ignore[func-returns-value]  # the same
    assert not returns_nothing(lambda event: str(print(event)))  # type: ignore[func-returns-value]  # the same
    assert not returns_nothing(lambda event: event.print(event))


def test_no_attributes_are_found_of_a_closure_as_its_values_may_decide() -> None:
    has_timers = False

    def step(event: Any, state: Any, context: Any) -> Any:
        return context.set_timer if has_timers else event

    assert attributes_used(step, 2) == frozenset()


def test_attributes_of_an_argument_are_found_in_inner_functions_too() -> None:
    def timed(event: Any, state: Any, context: Any) -> Any:
        event.other()
        return context.one, [context.two(each) for each in event], lambda: context.three

    assert attributes_used(timed, 2) == {"one", "two", "three"}
    assert attributes_used(timed, 3) == frozenset()
    assert attributes_used(print, 0) == frozenset()
