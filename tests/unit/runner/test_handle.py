"""``wallaroo.run``'s arguments, and the handle it returns."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_type_hints

import pytest

import wallaroo
from tests.unit.cli.run.fakes import FakeHandle
from tests.unit.spark.jvm.test_preflight import application
from wallaroo.errors import PeerError
from wallaroo.options import RunChanges


def test_every_option_is_a_keyword_argument_of_run_with_its_type() -> None:
    options = {field.name: field.type for field in fields(wallaroo.RunOptions)}
    assert list(RunChanges.__annotations__) == list(options)
    assert get_type_hints(RunChanges) == {
        name: kind for name, kind in get_type_hints(wallaroo.RunOptions).items() if name in options
    }


def test_a_mistyped_argument_of_run_is_refused_with_the_right_one() -> None:
    wrong: Any = {"taks": 3}
    with pytest.raises(TypeError, match=r"unexpected argument 'taks'\. Did you mean 'tasks'\?"):
        wallaroo.run(application(), **wrong)


def test_result_waits_and_returns_the_last_status() -> None:
    assert FakeHandle(ends_after=0).result().state == "stopped"


def test_result_raises_what_the_run_failed_with() -> None:
    with pytest.raises(PeerError, match="port 7010"):
        FakeHandle(ends_after=0, fails_with=PeerError("port 7010 is taken.")).result()


def test_result_of_a_run_that_goes_on_is_a_timeout() -> None:
    handle = FakeHandle()
    with pytest.raises(
        TimeoutError, match=r"is still running after 0.01 s; stop\(\) asks it to end"
    ):
        handle.result(0.01)


def test_the_end_of_a_with_block_stops_the_run_and_raises_its_error() -> None:
    with FakeHandle() as run:
        pass
    assert run.stops == 1
    with (
        pytest.raises(PeerError, match="gone"),
        FakeHandle(ends_after=0, fails_with=PeerError("gone")),
    ):
        pass


def test_an_error_of_the_with_block_is_not_hidden_by_the_runs() -> None:
    with (
        pytest.raises(KeyError, match="mine"),
        FakeHandle(ends_after=0, fails_with=PeerError("gone")),
    ):
        raise KeyError("mine")


def test_handle_and_status_are_shown_in_one_short_line() -> None:
    handle = FakeHandle()
    assert "starting (starting Spark), 61" in repr(FakeHandle(starts_after=1))
    handle.waits = 1
    assert (
        repr(handle) == "<FakeHandle 'Market Spread': running, 61 batches, 15,120,000 events done>"
    )
    assert repr(handle.status()) == (
        "<RunStatus 'Market Spread': running, 61 batches, 15,120,000 events done>"
    )
