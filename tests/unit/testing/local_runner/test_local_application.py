"""The in-process runner as tests use it: values, wires, batches, attempts, generators, single
steps.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from tests.conformance.apps import dropping, properties
from tests.conformance.apps.dropping import count_until_end
from tests.conformance.apps.shapes import Count
from tests.conformance.apps.steps import pass_on, text
from wallaroo.errors import UserCodeError, WallarooParameterError
from wallaroo.testing import (
    LocalApplication,
    VirtualClock,
    Wire,
    run_local,
    run_state_step,
    run_step,
)


class UpTo:
    """A generator of the numbers up to a bound."""

    def __init__(self, bound: int):
        self.bound = bound

    def initial_value(self) -> int | None:
        return 1 if self.bound else None

    def apply(self, value: int) -> int | None:
        return value + 1 if value < self.bound else None


@wallaroo.decoder(header_length=2, length_fmt=">H")
def framed(payload: bytes) -> str:
    return payload.decode()


@wallaroo.computation_multi("twice")
def twice(event: Any) -> list[Any]:
    return [event, event]


def closed(config: Any) -> Any:
    pipeline = wallaroo.source("in", config).to(twice).to_sink(wallaroo.StdoutSinkConfig(text))
    return wallaroo.build_application("local", pipeline)


def test_inputs_may_be_payloads_values_or_bytes_with_headers() -> None:
    application = closed(wallaroo.TCPSourceConfig("in", "127.0.0.1", 7000, framed))

    assert run_local(application, {"in": [b"a", b""]}).outputs == [b"a", b"a", b"", b""]
    assert run_local(application, {"in": [7]}).text == "7\n7\n"
    assert run_local(application, {"in": Wire(b"\0\1a\0\0")}).outputs == [b"a", b"a", b"", b""]
    assert run_local(application, {"in": b"\0\1a"}).outputs == [b"a", b"a"]


def test_a_payload_of_a_source_without_frames_may_be_large() -> None:
    """Only a port has a largest payload; a record of Kafka has none."""
    config = wallaroo.KafkaSourceConfig("in", "topic", "127.0.0.1:9092", wallaroo.decoder(len))
    sizes = wallaroo.source("in", config).to_sink(wallaroo.StdoutSinkConfig(wallaroo.encoder(str)))

    done = run_local(wallaroo.build_application("sizes", sizes), {"in": [b"x" * 20_000]})

    assert done.outputs == [b"20000"]


def test_half_a_frame_is_refused() -> None:
    application = closed(wallaroo.TCPSourceConfig("in", "127.0.0.1", 7000, framed))

    with pytest.raises(ValueError, match="the last frame is not whole: 3 bytes after byte 3"):
        run_local(application, {"in": b"\0\1a\0\4b"})


def test_an_unknown_source_is_reported_with_the_known_ones() -> None:
    unknown = "source 'out': there is no such source, only 'in'"
    with pytest.raises(WallarooParameterError, match=unknown):
        run_local(properties.totals(), {"out": [b"x"]})
    with pytest.raises(WallarooParameterError, match=unknown):
        LocalApplication(properties.totals()).send("out", b"x")
    with pytest.raises(WallarooParameterError, match=unknown):
        LocalApplication(properties.totals(), values_for=["out"])


def test_the_state_of_an_unknown_step_is_refused() -> None:
    run = run_local(properties.totals(), {"in": []})
    with pytest.raises(
        WallarooParameterError, match="'mistyped': no step with state has that name"
    ):
        run.state("mistyped")


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        ({"in": "ada"}, "'ada' is not a list of inputs. Pass a list"),
        ({"in": 5}, "5 is not a list of inputs"),
        ({"in": [b"ada", "bob"]}, "'bob' is not bytes, which its decoder reads. Send bytes only"),
        ({"in": b"ada\n"}, r"b'ada\\n' is not what a connection .* Pass a list of payloads: \[pay"),
        ([b"ada"], "not inputs by the name of their source. Pass a dict"),
    ],
)
def test_inputs_that_are_none_are_refused(inputs: Any, problem: str) -> None:
    with pytest.raises(WallarooParameterError, match=problem):
        run_local(properties.totals(), inputs)


def test_a_list_that_is_sent_as_one_input_is_refused() -> None:
    with pytest.raises(WallarooParameterError, match=r"\[b'ada'\] is not bytes"):
        LocalApplication(properties.totals()).send("in", [b"ada"])


def test_a_generator_needs_no_input_and_an_endless_one_is_cut() -> None:
    application = closed(wallaroo.GenSourceConfig("numbers", UpTo(5)))

    assert run_local(application).outputs == [
        b"%d" % number for number in (1, 1, 2, 2, 3, 3, 4, 4, 5, 5)
    ]
    assert run_local(application, limit=2, batches=2).outputs == [b"1", b"1", b"2", b"2"]
    assert run_local(closed(wallaroo.GenSourceConfig("numbers", UpTo(0)))).outputs == []


def test_a_batch_takes_what_it_is_asked_to_and_the_rest_waits() -> None:
    running = LocalApplication(properties.totals())
    running.send("in", b"a", b"b", b"a")

    assert running.batch(2) == {"stdout": [b"a 1", b"b 1"]} or running.result().by_sink == {
        "stdout": [b"b 1", b"a 1"]
    }
    assert running.waiting == 1
    assert running.batch() == {"stdout": [b"a 2"]}
    assert running.batch() == {"stdout": []}
    assert (running.result().events, running.result().batches) == (3, 3)


def test_an_attempt_leaves_nothing_behind() -> None:
    running = LocalApplication(properties.totals())
    running.send("in", b"a")

    attempt = running.attempt()

    assert attempt.outputs == {0: [b"a 1"]}
    assert (running.waiting, running.result().state("total"), running.result().outputs) == (
        1,
        {},
        [],
    )
    assert running.batch() == {"stdout": [b"a 1"]}


def test_a_batch_that_fails_leaves_nothing_behind_either() -> None:
    """What was sent waits; correct it, or look at it."""
    running = LocalApplication(properties.totals())
    running.send("in", b"a", b"\xff")

    with pytest.raises(UserCodeError, match="utf-8 text"):
        running.batch()

    assert (running.waiting, running.result().state("total")) == (2, {})
    assert running.batch(1) == {"stdout": [b"a 1"]}


def test_the_clock_stamps_what_is_sent_and_moves_when_it_is_set() -> None:
    clock = VirtualClock()
    clock.advance(1.5)

    assert clock.now_ns == 1_500_000_000


def test_a_time_that_is_no_number_is_refused() -> None:
    running = LocalApplication(properties.totals())
    span: Any = timedelta(seconds=5)
    for let_pass in (running.idle, running.outage, running.clock.advance):
        with pytest.raises(WallarooParameterError, match=r"^seconds: .*\(seconds=5\) is not a num"):
            let_pass(span)


def test_an_application_without_tasks_is_refused() -> None:
    with pytest.raises(WallarooParameterError, match=r"^tasks: 0 is too few\. Pass at least 1\.$"):
        run_local(properties.totals(), {"in": [b"ada"]}, tasks=0)


@pytest.mark.parametrize("run", [run_local, LocalApplication])
def test_what_is_no_application_is_refused(run: Callable[[Any], Any]) -> None:
    with pytest.raises(WallarooParameterError, match=r"not an application\. Pass what totals\(\["):
        run(properties.totals)
    with pytest.raises(
        WallarooParameterError, match=r"'app' is not an application\. Pass what bui"
    ):
        run("app")


def test_what_is_no_step_or_no_pair_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^plain is not a step: decorate it, or call it: plain\("):
        run_step(plain, [1])  # type: ignore[arg-type]  # the mistake
    with pytest.raises(TypeError, match=r"^1 is not a \(key, event\) pair: write \('a', 1\)$"):
        run_state_step(properties.total, [1])  # type: ignore[list-item]  # the mistake


def plain(event: int) -> int:
    return event


def test_one_step_by_itself() -> None:
    assert run_step(twice, [1, None]) == [1, 1]
    assert run_step(pass_on, [1, None, 2]) == [1, 2]
    assert run_step(text, [1]) == [b"1"]
    assert run_step(framed, [b"x"]) == ["x"]
    with pytest.raises(TypeError, match="'total' has state: use run_state_step"):
        run_step(properties.total, [])
    with pytest.raises(TypeError, match="'twice' has no state: use run_step"):
        run_state_step(twice, [])


def test_one_state_step_by_itself_copies_what_it_is_given() -> None:
    begun = properties.Total()
    begun.count = 5

    outputs, after = run_state_step(
        properties.total, [("a", "a"), ("b", "b"), ("a", "a")], {"a": begun}
    )

    assert outputs == [("a", "a 6"), ("b", "b 1"), ("a", "a 7")]
    assert (after["a"].count, after["b"].count, begun.count) == (7, 1, 5)


def test_one_state_step_by_itself_may_drop_its_state() -> None:
    begun = Count()
    begun.count = 5

    outputs, after = run_state_step(
        count_until_end, [("a", "a 1"), ("b", "b end"), ("a", "a end"), ("b", "b 2")], {"a": begun}
    )

    assert [output for _, output in outputs] == ["a 1 6 a", "b end 1 b", "a end 7 a", "b 2 1 b"]
    assert {key: state.count for key, state in after.items()} == {"b": 1}


def test_a_dropped_state_is_gone_from_the_application() -> None:
    running = LocalApplication(dropping.one_output(Path(), Path()))

    running.send("in", b"a 1", b"b 1")
    running.batch()
    assert sorted(running.result().state("count until end")) == ["a", "b"]
    running.send("in", b"a end")
    running.attempt()
    assert sorted(running.result().state("count until end")) == ["a", "b"]
    running.batch()

    assert sorted(running.result().state("count until end")) == ["b"]
