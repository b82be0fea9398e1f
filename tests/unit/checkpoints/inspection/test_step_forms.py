"""Windows, timers and join sides of a stored checkpoint, read as people need them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.stored.runner import DATA, unpack
from wallaroo.checkpoints.inspection.keyed import Part, StoredEntry
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.checkpoints.inspection.step_forms import StepForms, windows_in
from wallaroo.engine.blocks.keys import decode_key
from wallaroo.engine.blocks.ordered_keys import split_due, split_entry
from wallaroo.monitoring.status_api.entities import Question, answer
from wallaroo.monitoring.status_api.queries import COUNTS, KEYS, OBJECT, SEARCH
from wallaroo.steps.joins.pair_entries import Waiting, pack_sub, runs_of
from wallaroo.steps.windows.spec import RangeWindowSpec

Command = Callable[..., tuple[int, str, str]]
STEPS = ["sessions", "timed", "interval", "latest", "windowed", "deduped"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored")
    unpack(DATA / "accounts-micro-batch.tar.xz", folder)
    return folder / "checkpoint"


@pytest.fixture(scope="module")
def of_key(stored: Path) -> dict[str, Any]:
    state = CheckpointReader(stored).at()
    return {entry.step: state.forms.show(entry).value for entry in state.find(["a"])}


def test_every_step_with_entries_has_the_keys_of_its_events(stored: Path) -> None:
    sizes = CheckpointReader(stored).at().sizes()
    assert {step: size.keys for step, size in sizes.items()} == dict.fromkeys(sizes, 5)
    assert set(STEPS) < set(sizes)
    assert not [step for step in sizes if ":" in step]


def test_windows_have_their_bounds_in_utc_and_when_they_fire(of_key: dict[str, Any]) -> None:
    assert of_key["tumbling"] == {
        "windows": [
            {
                "from": "2020-09-13T12:27:30Z",
                "to": "2020-09-13T12:27:45Z",
                "fires": "2020-09-13T12:27:45Z",
                "value": 2,
            }
        ]
    }
    (session,) = of_key["sessions"]["windows"]
    assert session["from"] == "2020-09-13T12:26:43Z"
    assert session["to"] == session["fires"] == "2020-09-13T12:27:49Z"
    assert [pane["value"] for pane in of_key["sliding"]["panes"]] == [[44, 49], [54], [59]]
    assert of_key["counted"]["windows"][0]["events"] == 5


def test_timers_have_their_names_times_and_clock(of_key: dict[str, Any]) -> None:
    assert of_key["timed"]["timers"] == [
        {"at": "2020-09-13T12:28:10Z", "name": "quiet", "by": "event time"}
    ]
    assert of_key["timed"]["state"]["count"] == 12


def test_joins_have_the_waiting_events_of_each_side(of_key: dict[str, Any]) -> None:
    interval = of_key["interval"]
    assert [each["event"]["number"] for each in interval["left"]] == [59]
    assert [each["event"]["number"] for each in interval["right"]] == [56]
    assert interval["left"][0]["has met one"] is True
    assert of_key["latest"]["newest right"][0]["event"]["number"] == 56
    assert of_key["latest"]["left"][0]["at"] == "2020-09-13T12:27:40Z"
    assert [each["value"] for each in of_key["deduped"]["seen"]] == [0, 1]
    first = of_key["windowed"]["windows"][0]
    assert [event["number"] for event in first["left"]] == [54]


def test_a_run_of_a_joins_events_is_shown_event_by_event() -> None:
    events = [Waiting((time, 3, time), f"event {time}", time == 2) for time in (1, 2)]
    ((sub, value),) = runs_of(1, 3, events, pickle.dumps)
    entry = StoredEntry("join", "a", b"", (Part(sub, pickle.dumps(value), 0),))
    assert StepForms({"join": "open join"}).show(entry).value == {
        "right": [
            {"at": f"1970-01-01T00:00:00.00000000{time}Z", "event": f"event {time}"}
            | {"has met one": time == 2}
            for time in (1, 2)
        ]
    }


def test_waiting_events_that_only_the_application_reads_are_shown_as_bytes() -> None:
    part = Part(pack_sub(0, 1, 2, 0), b"own", 3)
    entry = StoredEntry("join", "a", b"", (part,))
    (shown,) = StepForms({"join": "open join"}).show(entry).value["entries"]
    assert shown["value"] == {"$packed": b"own".hex()}


def test_a_piece_with_rows_of_many_keys_shows_each_key_its_own(stored: Path) -> None:
    state = CheckpointReader(stored).at()
    numbers = {
        entry.key: [row["event"]["account"] for row in state.forms.show(entry).value["left"]]
        for entry in state.entries("latest")
        if "left" in state.forms.show(entry).value
    }
    assert numbers
    assert all(set(accounts) == {key} for key, accounts in numbers.items())


def test_without_the_plan_entries_are_shown_as_they_are_stored(stored: Path) -> None:
    state = CheckpointReader(stored).at()
    (entry,) = state.find(["a"], "tumbling")
    assert StepForms().show(entry).value["entries"][0]["value"] == 2


def test_a_specification_that_is_unknown_or_damaged_is_none() -> None:
    assert windows_in("app.Total") is None
    assert windows_in("app.Total over NewSpec(a=1)") is None
    assert windows_in("app.Total over RangeWindowSpec(a=1)") is None
    assert windows_in("app.Total over RangeWindowSpec(range_ns=1, slide_ns=") is None
    spec = RangeWindowSpec(10, 5)
    assert windows_in(f"app.Total over {spec}") == spec


def test_the_commands_show_windows_under_the_steps_name(stored: Path, wallaroo: Command) -> None:
    status, listed, _ = wallaroo("state", "list", "--checkpoint", stored, "--step", "sessions")
    assert status == 0
    assert "5 keys in step 'sessions'" in listed
    _, shown, _ = wallaroo("state", "get", "a", "--checkpoint", stored, "--step", "tumbling")
    assert (
        "windows\n    from 2020-09-13T12:27:30Z, to 2020-09-13T12:27:45Z, "
        "fires 2020-09-13T12:27:45Z, value 2" in shown
    )
    _, exported, _ = wallaroo(
        "state", "export", "--json", "--checkpoint", stored, "--step", "timed"
    )
    lines = [json.loads(line) for line in exported.splitlines()]
    assert {line["key"] for line in lines} == set("abcde")
    assert lines[0]["value"]["timers"][0]["name"] == "quiet"


def test_the_dashboard_and_its_queries_find_keys_with_windows(stored: Path) -> None:
    """Given open sessions, then the state explorer lists their keys and shows them."""

    def asked(query: str, limit: int = 100, **wanted: str) -> Any:
        return answer(Question(str(stored), query, limit, tuple(STEPS), wanted))[0]

    keys = asked(KEYS)
    assert {step: sorted(found) for step, found in keys.items()} == {
        step: list("abcde") for step in STEPS
    }
    counts = asked(COUNTS[0])
    assert counts == dict.fromkeys(STEPS, 5)
    found = asked(SEARCH, step="sessions", text="A")
    assert [(one["step"], one["key"]) for one in found] == [("sessions", "a")]
    history = asked(OBJECT, 10, step="sessions", key="a")
    (version,) = history["versions"]
    assert version["class"] == "windows"
    assert version["value"]["windows"][0]["to"] == "2020-09-13T12:27:49Z"


@pytest.mark.parametrize("step", ["sessions", "timed", "expiring", "interval", "deduped"])
def test_a_key_is_dropped_with_its_windows_and_timers(
    step: str, tmp_path: Path, wallaroo: Command
) -> None:
    """Nothing is left that would fire for it later; other keys stay."""
    unpack(DATA / "accounts-micro-batch.tar.xz", tmp_path)
    folder = tmp_path / "checkpoint"

    status, _, errors = wallaroo("state", "drop", folder, step, "a")

    assert (status, errors) == (0, "")
    assert _owners(folder, step) == set("bcde")
    assert wallaroo("state", "verify", folder)[0] == 0
    assert "has no key" in wallaroo("state", "drop", folder, step, "a")[2]


def test_a_key_whose_events_wait_with_those_of_others_is_not_dropped(
    tmp_path: Path, wallaroo: Command
) -> None:
    unpack(DATA / "accounts-micro-batch.tar.xz", tmp_path)

    status, _, errors = wallaroo("state", "drop", tmp_path / "checkpoint", "latest", "a")

    assert status == 1
    assert "step 'latest' keeps waiting events of several keys together" in errors
    assert "with --all removes all" in errors


def test_all_of_a_step_is_dropped_with_its_windows_and_timers(
    tmp_path: Path, wallaroo: Command
) -> None:
    unpack(DATA / "accounts-micro-batch.tar.xz", tmp_path)
    folder = tmp_path / "checkpoint"
    kept = CheckpointReader(folder).at().sizes()

    for step in kept:
        assert wallaroo("state", "drop", folder, step, "--all")[0] == 0
        assert CheckpointReader(folder).at().sizes()[step].bytes == 0


def _owners(folder: Path, step: str) -> set[Any]:
    """Return the keys of all that a step keeps, and of the rows that make it due."""
    state = CheckpointReader(folder).at()
    keys = set()
    for group in range(state.groups):
        for (name, stored), value in state.group(group).items():
            if name in (step, f"{step}: entries"):
                encoded = stored if name == step else split_entry(stored, value)[0]
                keys.add(decode_key(encoded))
            elif name == f"{step}: expiry":
                keys |= set(pickle.loads(value))
            elif name.startswith(f"{step}: due"):
                keys.add(decode_key(split_due(stored, value)[1]))
    return keys
