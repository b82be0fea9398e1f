"""Every build check: what it reports, where, and how it is fixed."""

from __future__ import annotations

import functools
import sys
import threading
from types import ModuleType
from typing import Any

import pytest

import wallaroo
from tests.unit.dataflow.check import checked_steps as given
from tests.unit.dataflow.check.checked_steps import (
    SINK,
    count,
    count_again,
    decode,
    first_letter,
    last_letter,
    shout,
    tcp,
    whisper,
)
from wallaroo.dataflow.check.pickling import interactive_problems
from wallaroo.errors import PipelineError, Problem
from wallaroo.sinks import MQTTSinkConfig
from wallaroo.sources import MQTTSourceConfig
from wallaroo.testing import run_local


def problems(*pipelines: Any, name: Any = "app") -> tuple[Problem, ...]:
    with pytest.raises(wallaroo.PipelineError) as raised:
        wallaroo.build_application(name, *pipelines)
    return raised.value.problems


def only(*pipelines: Any, name: Any = "app") -> Problem:
    found = problems(*pipelines, name=name)
    assert len(found) == 1, found
    return found[0]


def test_a_good_pipeline_has_no_problems() -> None:
    assert (
        wallaroo.build_application(
            "app", tcp("in").key_by(first_letter).to(count).to_sink(SINK)
        ).name
        == "app"
    )


def test_all_problems_are_reported_at_once_each_with_its_place() -> None:
    found = problems(tcp("in", 99999).to(count).to(len).to_sinks([]))  # type: ignore[call-overload]  # that is the point
    assert len(found) == 4
    assert all(
        problem.place.startswith(__file__) for problem in found if problem.step != "source 'in'"
    )
    assert {problem.step for problem in found} == {
        "source 'in'",
        "step 'count'",
        "step 'len'",
        "to_sinks()",
    }


def test_an_open_pipeline_is_asked_to_end_in_a_sink() -> None:
    problem = only(tcp("in").to(shout))
    assert problem.step == "application 'app'"
    assert problem.what == "The pipeline is open: it ends in step 'shout'."
    assert "to_sink()" in problem.fix


def test_a_step_after_a_sink_is_reported_at_its_own_line() -> None:
    problem = only(tcp("in").to_sink(SINK).to(shout).to_sink(SINK))
    assert (problem.step, "after a sink" in problem.what) == ("step 'shout'", True)


def test_a_second_sink_after_a_sink_points_to_to_sinks() -> None:
    assert "to_sinks([...])" in only(tcp("in").to_sink(SINK).to_sink(SINK)).fix


def test_merging_a_closed_pipeline_is_reported() -> None:
    problem = only(tcp("a").to_sink(SINK).merge(tcp("b")).to_sink(SINK))
    assert problem.step == "merge()"
    assert problem.what.startswith("One side is closed: it ended in a sink at ")


def test_an_empty_list_of_sinks_is_reported() -> None:
    assert only(tcp("in").to_sinks([])).what == "The list of sinks is empty."


def test_a_merge_of_a_keyed_and_an_unkeyed_side_is_reported() -> None:
    problem = only(tcp("a").key_by(first_letter).merge(tcp("b").to(shout)).to_sink(SINK))
    assert problem.what == (
        "One side ends in key_by 'first_letter', the other in step 'shout': unlike pipelines "
        "do not merge."
    )
    assert problem.fix == "Call key_by() after the merge, or last on both sides."


def test_a_merge_of_two_sides_that_end_in_different_keys_is_fine() -> None:
    both = tcp("a").key_by(first_letter).merge(tcp("b").key_by(last_letter))
    wallaroo.build_application("app", both.to(count).to_sink(SINK))


def test_a_state_step_without_a_key_is_asked_for_key_by_or_collect() -> None:
    problem = only(tcp("in").to(count).to_sink(SINK))  # type: ignore[call-overload]  # mypy says so too
    assert problem.what == "It keeps state, and no key_by() or collect() comes before it."
    assert "key_by(" in problem.fix
    assert "collect()" in problem.fix


def test_a_state_step_behind_a_merge_names_the_source_that_has_no_key() -> None:
    merged = tcp("a").key_by(first_letter).to(shout).merge(tcp("b").to(whisper))
    assert only(merged.to(count).to_sink(SINK)).what.endswith("on the way from source 'b'.")  # type: ignore[call-overload]


def is_short(event: str) -> bool:
    return len(event) < 3


def test_a_side_of_a_branch_that_leads_nowhere_is_reported() -> None:
    short, _ = tcp("in").branch(is_short)

    problem = only(short.to_sink(SINK))

    assert problem.step == "branch 'is_short'"
    assert problem.place.startswith(__file__)
    assert problem.what.startswith("The events for which it is false go nowhere")
    assert "build_application(name, first, second)" in problem.fix


def test_what_is_no_predicate_is_reported_with_its_place() -> None:
    short, long = tcp("in").branch(shout)  # type: ignore[arg-type,unused-ignore]  # that is the point

    problem = only(short.to_sink(SINK), long.to_sink(SINK))

    assert problem.what == "branch() was given the computation 'shout' instead of a function."
    assert problem.place.startswith(__file__)


def test_a_predicate_takes_one_argument() -> None:
    short, long = tcp("in").branch(lambda event, length: len(event) < length)  # type: ignore[call-overload,unused-ignore]

    problem = only(short.to_sink(SINK), long.to_sink(SINK))

    assert "a branch is called with one argument" in problem.what


def test_one_of_several_pipelines_that_is_open_is_named_by_its_number() -> None:
    start = tcp("in")

    problem = only(start.to(shout).to_sink(SINK), start.to(whisper))

    assert problem.what == "Pipeline 2 of 2 is open: it ends in step 'whisper'."


def test_a_pipeline_that_is_given_twice_is_reported() -> None:
    closed = tcp("in").to_sink(SINK)

    assert only(closed, closed).what.startswith("Pipeline 2 of 2 was given before (it ends at ")


def test_event_time_comes_before_a_stream_parts() -> None:
    start = tcp("in")
    timed = start.with_event_time(len)  # type: ignore[arg-type,unused-ignore]

    problem = only(timed.to_sink(SINK), start.to(shout).to_sink(SINK))

    assert problem.what.startswith("Events get their time after their stream has parted")


def test_steps_of_event_time_on_one_line_need_names() -> None:
    def timed(extractor: Any, name: str | None = None) -> wallaroo.Pipeline[str]:
        return tcp(f"in {extractor.__name__}").with_event_time(extractor, name=name)

    problem = only(timed(float).merge(timed(int)).to_sink(SINK))
    named = timed(float, "first time").merge(timed(int, "second time")).to_sink(SINK)
    steps = wallaroo.build_application("two", named).plan.steps

    assert problem.fix == "Give each step a name of its own: name='...'."
    assert {"first time", "second time"} <= {step.step_name for step in steps}


def test_a_state_step_in_two_branches_keeps_its_name_to_itself() -> None:
    keyed = tcp("in").key_by(first_letter)

    problem = only(keyed.to(count).to_sink(SINK), keyed.to(shout).to(count).to_sink(SINK))

    assert "state belongs to a step's name" in problem.what


class AnAggregation(wallaroo.Aggregation):
    pass


def with_default(text: str, times: int = 1) -> str:
    return text * times


def with_varargs(*texts: str) -> str:
    return texts[0]


def bare(text: str) -> str:
    return text


@pytest.mark.parametrize(
    ("thing", "what", "fix"),
    [
        (bare, "the bare function bare", "@wallaroo.computation"),
        (given.Total, "the class Total", "Write a computation"),
        (AnAggregation, "the class AnAggregation", "An aggregation goes into windows"),
        (decode, "the decoder 'decode'", "source configuration"),
        (given.encode, "the encoder 'encode'", "sink configuration"),
        (first_letter, "the key_extractor 'first_letter'", "key_by()"),
        (7, "an int", "Write a computation"),
    ],
)
def test_to_says_what_it_was_given_instead_of_a_computation(
    thing: Any, what: str, fix: str
) -> None:
    problem = only(tcp("in").to(thing).to_sink(SINK))
    assert problem.what == f"to() was given {what} instead of a computation."
    assert fix in problem.fix


def test_key_by_says_what_it_was_given_instead_of_a_key_extractor() -> None:
    to_key: Any = shout
    problem = only(tcp("in").key_by(to_key).to(count).to_sink(SINK))
    assert problem.what == "key_by() was given the computation 'shout' instead of a key extractor."
    assert problem.fix == "A computation goes into to()."


def test_source_and_to_sink_want_configurations() -> None:
    wrong: Any = "127.0.0.1:7010"
    assert (
        "instead of a source configuration" in only(wallaroo.source("in", wrong).to_sink(SINK)).what
    )
    assert "instead of a sink configuration" in only(tcp("in").to_sink(wrong)).what


def test_a_bare_function_as_decoder_is_reported() -> None:
    problem = only(tcp("in", decoder=bare).to_sink(SINK))
    assert problem.what == "Its decoder is the bare function bare."
    assert "@wallaroo.decoder" in problem.fix


def test_a_class_of_events_as_decoder_is_reported_with_the_decoder_of_its_json() -> None:
    wrong: Any = given.Total
    problem = only(tcp("in", decoder=wrong).to_sink(SINK))
    assert problem.what == "Its decoder is the class Total."
    assert problem.fix.startswith("Write Json(Total).decoder (of wallaroo.serdes), or a decoder")


def test_a_lambda_as_encoder_is_reported_with_what_to_write() -> None:
    wrong: Any = lambda text: text.encode()  # noqa: E731  # that is the point
    found = problems(tcp("in").to_sink(wallaroo.StdoutSinkConfig(wrong)))
    assert found[0].fix == "Write wallaroo.encoder(lambda ...)."


def test_a_bare_function_as_encoder_is_reported() -> None:
    wrong: Any = bare
    problem = only(tcp("in").to_sink(wallaroo.StdoutSinkConfig(wrong)))
    assert problem.what == "The encoder of sink StdoutSinkConfig is the bare function bare."


def test_a_generator_class_is_asked_to_be_an_object() -> None:
    problem = only(
        wallaroo.source("gen", wallaroo.GenSourceConfig("gen", given.Counting)).to_sink(SINK)
    )
    assert problem.what == "Its generator is the class Counting, not an object."


def test_a_generator_without_apply_is_reported() -> None:
    found = problems(
        wallaroo.source("gen", wallaroo.GenSourceConfig("gen", given.Total())).to_sink(SINK)
    )
    assert [problem.what for problem in found] == [
        "Its generator, a Total, has no method initial_value().",
        "Its generator, a Total, has no method apply().",
    ]


def test_a_function_with_the_wrong_number_of_arguments_is_reported_with_an_example() -> None:
    step: Any = wallaroo.computation(lambda a, b: a)  # type: ignore[misc,arg-type]  # that is the point
    problem = only(tcp("in").to(step).to_sink(SINK))
    assert (
        problem.what == "Its function takes 2 arguments; a computation is called with one argument."
    )
    assert problem.fix.startswith("Write it as: lambda event: ")


def test_defaults_and_varargs_make_a_function_fit() -> None:
    optional: Any = wallaroo.computation("optional")(with_default)
    anything: Any = wallaroo.computation("anything")(with_varargs)
    wallaroo.build_application("app", tcp("in").to(optional).to(anything).to_sink(SINK))


@pytest.mark.parametrize(
    ("length", "fmt", "what"),
    [
        (0, ">I", "header_length is 0."),
        (9, ">I", "header_length is 9."),
        ("4", ">I", "header_length is '4'."),
        (2, ">I", "length_fmt '>I' reads 4 bytes, header_length is 2."),
        (4, ">HH", "length_fmt '>HH' does not read one integer."),
        (4, ">f", "length_fmt '>f' does not read one integer."),
        (4, "nonsense", "length_fmt 'nonsense' is not a struct format"),
    ],
)
def test_an_unreadable_header_is_reported(length: Any, fmt: str, what: str) -> None:
    broken = wallaroo.decoder(length, fmt)(lambda payload: payload)
    problem = only(tcp("in", decoder=broken).to_sink(SINK))
    assert problem.what.startswith(what)
    assert problem.fix


def with_state(state: Any) -> Any:
    step: Any = wallaroo.state_computation("counts", state)(lambda event, own: None)
    return tcp("in").key_by(first_letter).to(step).to_sink(SINK)


def test_a_state_class_inside_of_a_function_is_reported() -> None:
    class Local:
        pass

    problem = only(with_state(Local))
    assert "state class Local is defined inside of a function" in problem.what
    assert problem.fix == "Move the class to the top level of its module."


def test_a_state_class_that_needs_arguments_is_reported() -> None:
    problem = only(with_state(given.NeedsArgument))
    assert problem.what.startswith(
        "Its state class NeedsArgument cannot be called without arguments (missing"
    )
    assert problem.fix == "Give every argument of __init__ a default."


def test_a_state_that_is_no_class_is_reported() -> None:
    assert only(with_state({})).what == "Its state {} is not a class."


def test_builtin_classes_are_good_states() -> None:
    wallaroo.build_application("app", with_state(dict))


@pytest.mark.parametrize(
    "state", [int, str, tuple, frozenset, given.Pair, given.Frozen, given.Whole, given.FrozenSlots]
)
def test_a_state_that_cannot_change_is_reported(state: Any) -> None:
    """What its function does would be lost without a word."""
    problem = only(with_state(state))
    assert problem.what == (
        f"Its state, {state.__name__}, cannot change: what the function does to it would be lost."
    )
    assert problem.fix == "Keep the value in an attribute of a class of its own: state.value = ..."


@pytest.mark.parametrize(
    "state", [object, list, set, given.FrozenList, given.PairOfLists, given.WholeWithMore]
)
def test_a_state_that_can_change_anywhere_is_good(state: Any) -> None:
    wallaroo.build_application("app", with_state(state))


@pytest.mark.parametrize(
    ("version", "shown"), [("2", "'2'"), (0, "0"), (65_536, "65536"), (True, "True")]
)
def test_a_version_that_is_none_is_reported(version: Any, shown: str) -> None:
    class_ = given.Versioned
    class_.state_version = version
    problem = only(with_state(class_))
    assert problem.what == f"Its state class Versioned has state_version = {shown}."
    assert problem.fix == "The version of a state class is an int, from 1 to 65535."


def test_a_state_class_that_raises_is_reported() -> None:
    assert (
        only(with_state(given.RaisesWhenMade)).what
        == "Its state class RaisesWhenMade raised OSError when it was made: no such table."
    )


def test_a_state_that_cannot_be_pickled_names_the_attribute() -> None:
    problem = only(with_state(given.HoldsLock))
    assert problem.what == (
        "Its state, a HoldsLock, cannot be stored: attribute 'lock' is a _thread.lock, which "
        "cannot be pickled."
    )


def test_a_step_that_captured_something_unpicklable_names_the_variable() -> None:
    lock = threading.Lock()

    @wallaroo.computation
    def guarded(text: str) -> str:
        with lock:
            return text

    problem = only(tcp("in").to(guarded).to_sink(SINK))
    assert problem.step == "step 'guarded'"
    assert problem.what == (
        "It cannot be sent to a worker: variable 'lock' is a _thread.lock, which cannot be pickled."
    )


def test_a_generator_that_holds_something_unpicklable_names_it_and_its_holder() -> None:
    problem = only(
        wallaroo.source("gen", wallaroo.GenSourceConfig("gen", given.HoldsNestedLock())).to_sink(
            SINK
        )
    )
    assert problem.what == (
        "Its generator cannot be pickled: attribute 'lock' of attribute 'client' is a "
        "_thread.lock, which cannot be pickled."
    )


SESSION = """
import wallaroo

class Count:
    def __init__(self): self.seen = 0

class Numbers:
    def initial_value(self): return 1
    def apply(self, last): return None

@wallaroo.computation
def typed(x): return x * 2

@wallaroo.key_extractor
def itself(x): return x

@wallaroo.state_computation(state=Count)
def count(x, state): return x
"""


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    typed_in = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", typed_in)
    exec(SESSION, typed_in.__dict__)
    return typed_in


def test_what_a_session_defines_may_be_built_and_run_locally_and_on_spark(
    session: ModuleType,
) -> None:
    app = wallaroo.build_application(
        "App", tcp("in").to(session.typed).key_by(session.itself).to(session.count).to_sink(SINK)
    )
    assert run_local(app, {"in": [b"ab"]}).outputs == [b"abab"]
    assert list(interactive_problems(app.plan.steps)) == []
    assert app._repr_markdown_().startswith("```mermaid\nflowchart")


def test_a_state_class_of_a_session_that_cannot_be_sent_is_refused_by_spark_alone(
    session: ModuleType,
) -> None:
    session.Count.lock = threading.Lock()
    app = wallaroo.build_application(
        "App", tcp("in").key_by(session.itself).to(session.count).to_sink(SINK)
    )
    with pytest.raises(PipelineError) as refused:
        wallaroo.run(app)
    (problem,) = refused.value.problems
    assert problem.step == "step 'count'"
    assert "cannot be sent to workers" in problem.what
    assert "run_local runs it here" in problem.fix


def test_a_generator_of_a_session_is_refused_by_spark_alone(session: ModuleType) -> None:
    source = wallaroo.source("gen", wallaroo.GenSourceConfig("gen", session.Numbers()))
    app = wallaroo.build_application("App", source.map(str).to_sink(SINK))
    with pytest.raises(PipelineError) as refused:
        wallaroo.run(app)
    (problem,) = refused.value.problems
    assert problem.step == "source 'gen'"
    assert problem.fix.startswith("Write the class to a file")


def test_a_step_from_a_script_with_dots_in_its_name_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = ModuleType("__main__")
    session.__file__ = "/somewhere/my app.v2.py"
    monkeypatch.setitem(sys.modules, "__main__", session)
    exec("import wallaroo\n@wallaroo.computation\ndef typed(x): return x", session.__dict__)
    app = wallaroo.build_application("App", tcp("in").to(session.typed).to_sink(SINK))
    (problem,) = interactive_problems(app.plan.steps)
    assert problem.fix == "Rename the script: letters, digits and underscores."


@pytest.mark.parametrize("name", ["", "  ", "two\nlines", None, 5])
def test_names_that_break_output_are_reported(name: Any) -> None:
    problem = only(tcp("in").to_sink(SINK), name=name)
    assert problem.what.startswith("The application's name")


def test_a_steps_name_with_a_newline_is_reported() -> None:
    step = wallaroo.computation(name="two\nlines")(bare)
    assert (
        only(tcp("in").to(step).to_sink(SINK)).what
        == "Its name, 'two\\nlines', has a control character in it."
    )


def test_two_sources_of_one_name_are_reported_for_both_their_names() -> None:
    found = problems(tcp("in").merge(tcp("in")).to_sink(SINK))
    assert len(found) == 2
    assert found[0].what.startswith("source() was called with this name before (")
    assert found[1].what.startswith("Its configuration's name 'in' is taken (")


def test_two_different_steps_of_one_name_are_reported() -> None:
    other = wallaroo.computation(name="shout")(bare)
    problem = only(tcp("in").to(shout).to(other).to_sink(SINK))
    assert problem.what.startswith("Another step of this name is defined at ")


def test_one_stateless_step_may_stand_in_several_places() -> None:
    wallaroo.build_application("app", tcp("a").to(shout).merge(tcp("b").to(shout)).to_sink(SINK))


def test_a_function_that_builds_a_stream_with_lambdas_may_be_called_twice() -> None:
    """A lambda that holds a value is another step each time."""

    def stream(name: str) -> Any:
        return (
            tcp(name)
            .with_event_time(lambda event: 1.7e9)
            .filter(lambda event: event != "")
            .key_by(lambda event: event[0])
        )

    def prefixed(name: str) -> Any:
        return tcp(name).map(lambda event: name + event).key_by(first_letter)

    wallaroo.build_application("app", stream("a").merge(stream("b")).to_sink(SINK))
    problem = only(prefixed("a").merge(prefixed("b")).to_sink(SINK))
    assert problem.what.startswith("Another step of this name is defined at ")


def test_one_state_step_may_not_stand_in_two_places() -> None:
    step: Any = count
    problem = only(tcp("a").key_by(first_letter).to(step).to(step).to_sink(SINK))
    assert problem.what.endswith("and state belongs to a step's name.")


@pytest.mark.parametrize("port", [-1, 65536, "seven", None])
def test_what_is_no_port_is_reported(port: Any) -> None:
    assert only(tcp("in", port).to_sink(SINK)).what == f"{port!r} is not a port."


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost", ""])
def test_two_sources_on_one_port_are_reported(host: str) -> None:
    problem = only(tcp("a", 7010).merge(tcp("b", "7010", host=host)).to_sink(SINK))
    assert problem.step == "source 'b'"
    assert problem.what.startswith("Port 7010 is taken by source 'a' (")


def test_sources_on_one_port_of_different_hosts_or_on_free_ports_are_fine() -> None:
    merged = (
        tcp("a", 7010).merge(tcp("b", 7010, host="10.0.0.1")).merge(tcp("c", 0)).merge(tcp("d", 0))
    )
    wallaroo.build_application("app", merged.to_sink(SINK))


def test_a_source_that_does_not_listen_takes_no_port() -> None:
    idle = wallaroo.source(
        "b", wallaroo.TCPSourceConfig("b", "127.0.0.1", 7010, decode, valid=False)
    )
    wallaroo.build_application("app", tcp("a", 7010).merge(idle).to_sink(SINK))


def test_sources_and_sinks_of_one_broker_are_fine() -> None:
    """The port of an MQTT source is the broker's: nothing of the application listens on it."""
    first, second = (
        wallaroo.source(name, MQTTSourceConfig(name, f"{name}/#", "127.0.0.1", given.decode))
        for name in ("a", "b")
    )
    sink = MQTTSinkConfig("127.0.0.1", "out", given.encode)

    wallaroo.build_application("app", first.merge(second).to_sink(sink))


def test_a_sink_that_sends_to_a_sources_port_is_reported() -> None:
    problem = only(tcp("in", 7010).to_sink(wallaroo.TCPSinkConfig("localhost", 7010, given.encode)))
    assert problem.what == (
        "It sends to port 7010, where source 'in' listens: the application would read its own "
        "output."
    )


def test_two_file_sinks_with_one_path_are_reported() -> None:
    """Also if it is written differently, and if both are of one pipeline."""
    sinks = [wallaroo.FileSinkConfig(path, given.encode) for path in ("out/a.txt", "out//a.txt")]
    for pipelines in (
        [tcp("in").to_sink(sinks[0]), tcp("other", 7001).to_sink(sinks[1])],
        [tcp("in").to_sinks(sinks)],
    ):
        problem = only(*pipelines)
        assert problem.what.startswith("It writes out/")
        assert problem.fix == "Give every file sink a path of its own."


def test_two_sinks_to_one_receiver_are_fine() -> None:
    sink = wallaroo.TCPSinkConfig("127.0.0.1", 7002, given.encode)
    wallaroo.build_application(
        "app", tcp("in").key_by(first_letter).to(count).to(count_again).to_sinks([sink, sink])
    )


def test_build_application_wants_a_pipeline() -> None:
    assert "instead of a pipeline" in only(shout).what


async def wait(event: str) -> str:
    return event


def several(event: str, *_: object) -> Any:
    yield event


async def wait_for_several(event: str) -> Any:
    yield event


class Callable:
    async def __call__(self, event: str) -> str:
        return event


@pytest.mark.parametrize("decorator", [wallaroo.computation, wallaroo.computation_multi])
@pytest.mark.parametrize(
    "function",
    [wait, wait_for_several, Callable(), functools.partial(wait)],
    ids=["coroutine", "generator", "callable object", "partial"],
)
def test_an_async_function_is_no_step(decorator: Any, function: Any) -> None:
    problem = next(
        found
        for found in problems(tcp("in").to(decorator("waits")(function)).to_sink(SINK))
        if "async" in found.what
    )
    assert problem.step == "step 'waits'"
    assert problem.what == "Its function is async; a step's function is called, never awaited."
    assert problem.fix.startswith("Write it with def, as: def ")


def test_an_async_function_is_reported_at_its_line() -> None:
    place = only(tcp("in").to(wallaroo.computation("waits")(wait)).to_sink(SINK)).place
    assert place == f"{__file__}:{wait.__code__.co_firstlineno}"


def test_a_generator_is_no_computation() -> None:
    problem = only(tcp("in").to(wallaroo.computation("several")(several)).to_sink(SINK))
    assert (problem.step, problem.place) == (
        "step 'several'",
        f"{__file__}:{several.__code__.co_firstlineno}",
    )
    assert problem.what == (
        "Its function is a generator (it has a yield); a computation returns one value."
    )
    assert problem.fix == "Make it a @wallaroo.computation_multi, or return a value."
    assert only(tcp("in").filter(several).to_sink(SINK)).fix == "Return a value."


@pytest.mark.parametrize(
    ("keyed", "fix"),
    [
        (
            wallaroo.state_computation("several", state=given.Total),
            "@wallaroo.state_computation_multi",
        ),
        (wallaroo.key_extractor("several"), "Return a value."),
    ],
    ids=["state computation", "key extractor"],
)
def test_generators_are_found_in_steps_of_every_kind(keyed: Any, fix: str) -> None:
    step = keyed(several)
    pipeline = (
        tcp("in").key_by(step)
        if step.kind == "key_extractor"
        else tcp("in").key_by(first_letter).to(step)
    )
    assert fix in only(pipeline.to_sink(SINK)).fix


def test_a_generator_may_give_several_outputs() -> None:
    step = wallaroo.computation_multi("several")(several)
    wallaroo.build_application("app", tcp("in").to(step).to_sink(SINK))


@pytest.mark.parametrize(
    "function",
    [
        lambda event, state: None,
        lambda event, state, context: None,
        lambda event, state, context=None: None,
        lambda event, state, limit=10: None,
        lambda event, *rest: None,
    ],
)
def test_a_state_computation_takes_two_arguments_or_three(function: Any) -> None:
    step = wallaroo.state_computation("counts", state=given.Total)(function)
    wallaroo.build_application("app", tcp("in").key_by(first_letter).to(step).to_sink(SINK))


def test_a_state_computation_of_four_arguments_is_shown_how_it_is_written() -> None:
    step = wallaroo.state_computation("counts", state=given.Total)(lambda a, b, c, d: None)
    problem = only(tcp("in").key_by(first_letter).to(step).to_sink(SINK))
    assert problem.what == (
        "Its function takes 4 arguments; a state_computation is called with two arguments or "
        "three arguments."
    )
