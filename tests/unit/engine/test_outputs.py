"""What a sink without an encoder refuses to write."""

from __future__ import annotations

import warnings

import pytest

from wallaroo.engine.operators.outputs import as_text


async def answer() -> str:
    return "never"


def test_the_result_of_an_async_function_is_named_and_python_adds_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TypeError, match="called an async function, and a step cannot await"):
            as_text(answer())


def test_an_object_without_a_text_is_refused() -> None:
    with pytest.raises(TypeError, match="emitted a object, which has no text"):
        as_text(object())
    assert as_text(5) == "5"
