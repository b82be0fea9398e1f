"""Generators in a run in this process emit what they emit in their feeder."""

from __future__ import annotations

from typing import Any

import pytest

import wallaroo
from wallaroo.testing import run_local


class Growing:
    """Returns one list, which it changes."""

    def initial_value(self) -> list[int]:
        return [0]

    def apply(self, value: list[int]) -> list[int] | None:
        value.append(len(value))
        return value if len(value) < 4 else None


class Failing:
    def initial_value(self) -> int:
        return 1

    def apply(self, value: int) -> int:
        raise ValueError("no more")


def application(generator: Any) -> wallaroo.Application:
    source = wallaroo.source("numbers", wallaroo.GenSourceConfig("numbers", generator))
    sink = wallaroo.StdoutSinkConfig(wallaroo.encoder(str))
    return wallaroo.build_application("generated", source.to_sink(sink))


def test_a_value_is_as_it_was_when_it_was_returned() -> None:
    assert run_local(application(Growing())).text.splitlines() == ["[0]", "[0, 1]", "[0, 1, 2]"]


def test_an_exception_names_the_source_and_the_value_before() -> None:
    with pytest.raises(wallaroo.UserCodeError, match=r"'numbers' failed at .*no more\n.*after 1"):
        run_local(application(Failing()))
