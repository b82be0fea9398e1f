"""Rules about dead letters and their sink."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wallaroo.dataflow.check.subject import LATER, Subject, used_steps
from wallaroo.errors import Problem
from wallaroo.sinks.interface import SinkConfig
from wallaroo.steps.kinds import DEAD_LETTER, Step

CURE = (
    "Write build_application(..., dead_letters=FileSinkConfig('dead.jsonl')), or run with "
    "--dead-letters PATH."
)
TITLES = {"decoder": "decoder", "encoder": "encoder", "key_extractor": "key_by"}


def dead_letters_have_a_sink(subject: Subject) -> Iterator[Problem]:
    """Require a sink for the dead letters of steps."""
    if subject.dead_letters is None:
        yield from missing_sink(used.step for used in used_steps(subject))


def missing_sink(steps: Iterable[Step]) -> Iterator[Problem]:
    """Yield a problem for each step that writes dead letters, if there is no sink for them."""
    for step in steps:
        if step.on_error == DEAD_LETTER:
            title = f"{TITLES.get(step.kind, 'step')} '{step.step_name}'"
            yield Problem(
                title,
                step.place,
                "It has on_error='dead-letter', and there is no dead-letter sink.",
                CURE,
            )


def dead_letter_sink_is_a_sink(subject: Subject) -> Iterator[Problem]:
    """Require one sink for ``dead_letters``, checked like others."""
    config = subject.dead_letters
    if config is None or config is LATER:
        return
    if not isinstance(config, SinkConfig):
        what = f"dead_letters={config!r} is not a sink configuration."
        yield subject.problem(what, "Give it one, such as FileSinkConfig('dead.jsonl').")
