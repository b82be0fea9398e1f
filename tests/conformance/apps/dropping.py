"""Applications whose state computations drop their state."""

from __future__ import annotations

from pathlib import Path

import wallaroo
from tests.conformance.apps.shapes import Count, build
from tests.conformance.apps.steps import by_first_word, sink, source
from wallaroo.api.application import Application


@wallaroo.state_computation("count until end", state=Count)
def count_until_end(event: str, own: Count, context: wallaroo.Context) -> str:
    own.count += 1
    if event.split()[1] == "end":
        context.drop_state()
    return f"{event} {own.count} {context.key}"


@wallaroo.state_computation_multi("repeat until end", state=Count)
def repeat_until_end(event: str, own: Count, context: wallaroo.Context) -> list[str]:
    """As many outputs as events of the key since its state was dropped."""
    own.count += 1
    if event.split()[1] == "end":
        context.drop_state()
    return [f"{event} {number}" for number in range(1, own.count + 1)]


def one_output(inputs: Path, outputs: Path) -> Application:
    pipeline = source(inputs).key_by(by_first_word).to(count_until_end)
    return build("state dropped", pipeline.to_sink(sink(outputs)))


def many_outputs(inputs: Path, outputs: Path) -> Application:
    pipeline = source(inputs).key_by(by_first_word).to(repeat_until_end)
    return build("state dropped, several outputs", pipeline.to_sink(sink(outputs)))
