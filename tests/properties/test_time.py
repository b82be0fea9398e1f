"""Event time in one process: any cut into batches, any number of tasks and any crash give the results
of one undisturbed run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

import wallaroo
from wallaroo.testing import LocalApplication

SECOND = wallaroo.seconds(1)
GAP = 5 * SECOND


class Click(NamedTuple):
    key: str
    at: int  # seconds
    number: int


class Session:
    """A key's clicks that lie less than a gap apart."""

    def __init__(self) -> None:
        self.numbers: list[int] = []


class Seen:
    """What a key had in order."""

    def __init__(self) -> None:
        self.texts: list[str] = []


@wallaroo.decoder
def click(payload: bytes) -> Click:
    key, at, number = payload.decode().split()
    return Click(key, int(at), int(number))


def time_of(event: Click) -> int:
    return event.at * SECOND


@wallaroo.key_extractor
def key_of(event: Click) -> str:
    return event.key


@wallaroo.key_extractor
def first_letter(text: str) -> str:
    return text[0]


@wallaroo.state_computation(name="session", state=Session)
def session(event: Click, state: Session, context: wallaroo.Context) -> str | None:
    if context.event_time <= context.watermark:
        return f"{event.key} late {event.number}"
    state.numbers.append(event.number)
    context.set_timer("gap", context.event_time + GAP)
    if event.number % 5 == 0:
        context.set_timer(f"reminder {event.number}", context.event_time + 2 * SECOND)
    if event.number % 7 == 0:
        context.cancel_timer(f"reminder {event.number - 2}")
    return None


@session.on_timer
def due(state: Session, context: wallaroo.Context, name: str) -> str:
    text = f"{context.key} {name} at {context.event_time // SECOND}: {state.numbers}"
    if name == "gap":
        context.drop_state()
    return text


@session.on_end
def ended(state: Session, context: wallaroo.Context) -> str:
    return f"{context.key} ended with {state.numbers}"


@wallaroo.state_computation(name="after", state=Seen)
def after(text: str, state: Seen, context: wallaroo.Context) -> str:
    state.texts.append(text)
    context.set_timer("flush", context.event_time + 3 * SECOND)
    return text


@after.on_timer
def flush(state: Seen, context: wallaroo.Context, name: str) -> str:
    texts, state.texts = state.texts, []
    return f"{context.key} flushed {texts}"


@wallaroo.encoder
def line(text: str) -> str:
    return text + "\n"


def application() -> wallaroo.Application:
    source = wallaroo.TCPSourceConfig("clicks", "127.0.0.1", "7010", click)
    pipeline = (
        wallaroo.source("clicks", source)
        .with_event_time(time_of, delay=2 * SECOND)
        .key_by(key_of)
        .to(session)
        .key_by(first_letter)
        .to(after)
        .to_sink(wallaroo.StdoutSinkConfig(line))
    )
    return wallaroo.build_application("sessions", pipeline)


APPLICATION = application()


def by_key(outputs: list[bytes]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for output in outputs:
        text = output.decode().strip()
        found.setdefault(text[0], []).append(text)
    return found


def run(clicks: list[Click], cuts: list[int], tasks: list[int], crashes: set[int]) -> Any:
    """Run with batches that end at ``cuts``; attempts at the batches in ``crashes`` are lost."""
    running = LocalApplication(APPLICATION, tasks=1)
    for each in clicks:
        running.send("clicks", f"{each.key} {each.at} {each.number}".encode())
    done = 0
    for number, cut in enumerate(cuts):
        count = tasks[number % len(tasks)]
        if number in crashes:
            running.attempt(cut - done, count)
        running.batch(cut - done, count)
        done = cut
    running.end()
    return by_key(running.result().outputs), running.result().state("session")


@st.composite
def clicks(draw: Any) -> list[Click]:
    ats = draw(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30)), max_size=40))
    drift = draw(st.integers(0, 2))
    return [Click(key, at + number * drift, number) for number, (key, at) in enumerate(ats)]


@settings(max_examples=200, deadline=None)
@given(clicks(), st.data())
def test_results_do_not_depend_on_cuts_tasks_and_crashes(given_: list[Click], data: Any) -> None:
    total = len(given_)
    cuts = sorted(data.draw(st.lists(st.integers(0, total), max_size=8)))
    tasks = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    crashes = data.draw(st.sets(st.integers(0, 8), max_size=4))

    outputs, state = run(given_, cuts, tasks, crashes)
    expected, kept = run(given_, [], [1], set())
    one_by_one, _ = run(given_, list(range(total + 1)), [3], set())

    assert outputs == expected
    assert one_by_one == expected
    assert {key: own.numbers for key, own in state.items()} == {
        key: own.numbers for key, own in kept.items()
    }
