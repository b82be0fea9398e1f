"""Functions that are created in a loop of ``application_setup``."""

from __future__ import annotations

from typing import Any

import pytest

import wallaroo
from wallaroo.errors import PipelineError


def build(*pipelines: Any) -> None:
    wallaroo.build_application("app", *pipelines)


def lines() -> Any:
    return wallaroo.source("in", wallaroo.FileSourceConfig("in", "in.txt"))


def sink(name: str) -> Any:
    return wallaroo.StdoutSinkConfig(name=name)


def test_functions_that_share_the_variable_of_a_loop_are_refused() -> None:
    """All of them would read its last value."""
    source = lines()
    ends = []
    for word in ("a", "b"):
        only = source.filter(lambda line: line == word, name=f"only {word}")  # noqa: B023  # the mistake
        ends.append(only.to_sink(sink(word)))

    with pytest.raises(PipelineError) as caught:
        build(*ends)

    text = str(caught.value)
    assert "step 'only a'" in text
    assert "reads word, which was 'a' when the step was created, and is 'b'" in text
    assert "Create the function in another function that has word as its parameter" in text
    assert "only b" not in text


def test_functions_with_a_parameter_or_a_function_of_their_own_are_accepted() -> None:
    source = lines()
    ends = []
    for word in ("a", "b"):
        bound = source.filter(lambda line, word=word: line == word, name=f"only {word}")
        ends.append(bound.map(with_word(word), name=f"with {word}").to_sink(sink(word)))

    build(*ends)


def with_word(word: str) -> Any:
    return lambda line: f"{word} {line}"


def test_a_variable_that_stays_what_it_was_may_be_shared() -> None:
    source = lines()
    prefix = "-"
    names = []
    ends = []
    for word in ("a", "b"):
        names.append(word)
        mapped = source.map(lambda line: f"{prefix} {line} {names}", name=f"map {word}")
        ends.append(mapped.to_sink(sink(word)))

    build(*ends)


def test_a_variable_of_one_step_may_be_assigned_later() -> None:
    prefix = ""
    mapped = lines().map(lambda line: f"{prefix}{line}", name="map")
    prefix = "-"

    build(mapped.to_sink(sink("out")))
