"""State that becomes unpicklable while it is used: the error names what it holds."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import wallaroo
from wallaroo.errors import UserCodeError
from wallaroo.testing import run_local


class Held:
    def __init__(self) -> None:
        self.inner: dict[str, Any] = {}


class Slotted:
    __slots__ = ("lock",)


@wallaroo.key_extractor
def first(event: str) -> str:
    return event[0]


@wallaroo.state_computation(state=Held)
def keep_lambda(event: str, state: Held) -> None:
    state.inner["callback"] = lambda: event


@wallaroo.state_computation(state=Slotted)
def keep_lock(event: str, state: Slotted) -> None:
    state.lock = threading.Lock()


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (
            keep_lambda,
            "state of key 'a'; entry 'callback' of attribute 'inner' is the function "
            "keep_lambda.<locals>.<lambda>, which cannot be pickled",
        ),
        (keep_lock, "state of key 'a'; attribute 'lock' is a _thread.lock"),
    ],
)
def test_the_attribute_that_cannot_be_pickled_is_named_with_its_key(step: Any, words: str) -> None:
    pipeline = (
        wallaroo.source("in", wallaroo.FileSourceConfig("in", "in.txt"))
        .key_by(first)
        .to(step)
        .to_sink(wallaroo.StdoutSinkConfig())
    )
    with pytest.raises(UserCodeError) as raised:
        run_local(wallaroo.build_application("app", pipeline), {"in": ["ab"]})
    assert words in raised.value.event
    assert "Keep only picklable values in the state" in raised.value.event
