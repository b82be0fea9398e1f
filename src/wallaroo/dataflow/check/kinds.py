"""Rules about the kinds of arguments in a pipeline.

Steps belong in ``to``, key extractors in ``key_by``, configurations at the ends.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from wallaroo.dataflow.check.subject import Subject, name_of, problem_at
from wallaroo.dataflow.graph.nodes import KeyByNode, SinkNode, SourceNode, StepNode
from wallaroo.errors import Problem
from wallaroo.sinks.interface import SinkConfig
from wallaroo.sources.interface import SourceConfig
from wallaroo.steps.kinds import Decoder, Encoder, KeyExtractor, Step

BELONGS = {
    "decoder": "A decoder goes into a source configuration.",
    "encoder": "An encoder goes into a sink configuration.",
    "key_extractor": "A key extractor goes into key_by().",
    "batch_decoder": "A decoder goes into a source configuration.",
    "batch_encoder": "An encoder goes into a sink configuration.",
    "batch_key_extractor": "A key extractor goes into key_by().",
    "state computation without a state": (
        "It needs the state's class: @state_computation(name='...', state=YourStateClass)."
    ),
    "partition": "A partition function is for ApplicationBuilder; make it a key extractor.",
}
IN_TO = "A computation goes into to()."


def computations_in_to(subject: Subject) -> Iterator[Problem]:
    for node in subject.of(StepNode):
        if not (isinstance(node.step, Step) and node.step.is_computation):
            what = f"to() was given {described(node.step)} instead of a computation."
            yield problem_at(node, what, _fix(node.step, "computation"))


def key_extractors_in_key_by(subject: Subject) -> Iterator[Problem]:
    for node in subject.of(KeyByNode):
        if not isinstance(node.extractor, KeyExtractor):
            what = f"key_by() was given {described(node.extractor)} instead of a key extractor."
            yield problem_at(node, what, _fix(node.extractor, "key_extractor"))


def configurations_at_the_ends(subject: Subject) -> Iterator[Problem]:
    """Require source configurations in ``source``, sink configurations in ``to_sink``."""
    for node in subject.of(SourceNode):
        if not isinstance(node.config, SourceConfig):
            what = f"source() was given {described(node.config)} instead of a source configuration."
            yield problem_at(
                node, what, "Give it a TCPSourceConfig, FileSourceConfig or GenSourceConfig."
            )
    for node in subject.of(SinkNode):
        for config in node.sinks:
            if not isinstance(config, SinkConfig):
                what = f"It was given {described(config)} instead of a sink configuration."
                yield problem_at(
                    node, what, "Give it a TCPSinkConfig, FileSinkConfig or StdoutSinkConfig."
                )


def codecs_in_configurations(subject: Subject) -> Iterator[Problem]:
    """Require decoders in source configurations, encoders in sink configurations."""
    for node in subject.of(SourceNode):
        decoder = getattr(node.config, "decoder", None)
        if isinstance(node.config, SourceConfig) and not isinstance(decoder, Decoder):
            what = f"Its decoder is {described(decoder)}."
            yield problem_at(node, what, _fix(decoder, "decoder"))
    for node in subject.of(SinkNode):
        for config in node.sinks:
            encoder = getattr(config, "encoder", None)
            if (
                isinstance(config, SinkConfig)
                and encoder is not None
                and not isinstance(encoder, Encoder)
            ):
                what = f"The encoder of sink {type(config).__name__} is {described(encoder)}."
                yield problem_at(node, what, _fix(encoder, "encoder"))


def lines_are_separated(subject: Subject) -> Iterator[Problem]:
    """Require newlines between lines of JSON or CSV in a file, and no other payloads in lines."""
    for node in subject.of(SinkNode):
        for config in node.sinks:
            function = getattr(getattr(config, "encoder", None), "function", None)
            codec = getattr(function, "__self__", None)
            form = getattr(config, "form", None)
            if form == "lines" and getattr(codec, "is_line", True) is False:
                what = f"Outputs of sink {type(config).__name__} may hold newlines in their lines."
                yield problem_at(node, what, 'Write form="frames".')
            if form == "raw" and getattr(codec, "is_line", False):
                what = f"Outputs of sink {type(config).__name__} would be one line without an end."
                yield problem_at(node, what, 'Add form="lines".')


def generators_generate(subject: Subject) -> Iterator[Problem]:
    """Require objects with ``initial_value`` and ``apply`` in generator sources."""
    for node in subject.of(SourceNode):
        if not hasattr(node.config, "gen_instance"):
            continue
        generator = node.config.gen_instance
        if inspect.isclass(generator):
            what = f"Its generator is the class {generator.__name__}, not an object."
            fix = f"Write {generator.__name__}()."
            yield problem_at(node, what, fix)
            continue
        for method in ("initial_value", "apply"):
            if not callable(getattr(generator, method, None)):
                what = f"Its generator, a {type(generator).__name__}, has no method {method}()."
                fix = "A generator has initial_value() and apply(value); None ends it."
                yield problem_at(node, what, fix)


def described(thing: Any) -> str:
    """Return a description of an argument of the wrong kind."""
    if isinstance(thing, Step):
        return f"the {thing.kind} '{thing.step_name}'"
    if inspect.isclass(thing):
        return f"the class {thing.__name__}"
    if inspect.isroutine(thing):
        return f"the bare function {name_of(thing)}"
    kind = type(thing).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _fix(thing: Any, wanted: str) -> str:
    if isinstance(thing, Step):
        return BELONGS.get(thing.kind, IN_TO)
    kind = thing if inspect.isclass(thing) else type(thing)
    if any(base.__name__ == "Aggregation" for base in kind.__mro__):
        return (
            f"An aggregation goes into windows: wallaroo.range_windows(span).over({kind.__name__})."
        )
    if hasattr(thing, "over"):
        return "End the windows with over(YourAggregation)."
    of_serde = getattr(thing, wanted, None)
    if isinstance(of_serde, Step) or (inspect.isclass(thing) and of_serde is not None):
        return f"Write {kind.__name__}(...).{wanted}."
    article = "an" if wanted == "encoder" else "a"
    if callable(thing) and not inspect.isclass(thing):
        return _decorated(thing, wanted)
    is_of_events = kind is thing and wanted == "decoder"
    of_events = f"Json({kind.__name__}).decoder (of wallaroo.serdes), or " if is_of_events else ""
    return f"Write {of_events}{article} {wanted} as a function with @wallaroo.{wanted} on it."


def _decorated(function: Any, wanted: str) -> str:
    name = name_of(function)
    is_lambda = name == "<lambda>"
    if wanted == "computation":  # this is the only difference between `map` and `to`
        return (
            "Write .map(lambda ...) in place of .to(lambda ...)."
            if is_lambda
            else f"Put @wallaroo.{wanted} on its definition, or write .map({name})."
        )
    if is_lambda:
        return f"Write wallaroo.{wanted}(lambda ...)."
    return f"Put @wallaroo.{wanted} on its definition."
