"""``wallaroo plan`` on state classes that changed, and its trial of every stored object."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.checkpoints.inspection.conftest import begin  # noqa: F401  # fixture
from wallaroo.checkpoints.inspection.compatibility import check_compatibility, look
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.cli.application.loading import load_application
from wallaroo.engine.blocks.packing import PICKLED
from wallaroo.engine.stores.evolution import evolving, with_version
from wallaroo.errors import CheckpointError
from wallaroo.state.checkpoint import open_checkpoint

APPLICATION = """
import wallaroo


{state}


@wallaroo.key_extractor
def key_of(event):
    return event


@wallaroo.state_computation("count", state=Total{options})
def counted(event, state):
    return event


def application_setup(args):
    lines = wallaroo.source("lines", wallaroo.FileSourceConfig("lines", "in.txt"))
    words = lines.key_by(key_of).to(counted)
    return wallaroo.build_application("judged", words.to_sink(wallaroo.StdoutSinkConfig()))
"""
FIRST = """
class Total:
    def __init__(self):
        self.count = 0
        self.old = 1
"""
MORE = """
class Total:
    def __init__(self):
        self.count = "0"
        self.last = None
"""
SECOND = """
class Total:
    state_version = 2

    def __init__(self, seen=0):
        self.seen = seen


@wallaroo.upgrade(Total, from_version=1)
def upgraded(fields):
    return Total(100 // fields["count"])
"""
SLOTS = """
class Total:
    __slots__ = ({slots})

    def __init__(self):
        for name in self.__slots__:
            setattr(self, name, 1)
"""
STRUCT = """
import msgspec


class Total(msgspec.Struct):
    count: int = 0
    old: int = 1
"""
SWAPPED = STRUCT.replace("    count: int = 0\n", "") + "    count: int = 0\n"
INSERTED = STRUCT.replace("    count", "    new: int = 0\n    count")
APPENDED = STRUCT + "    new: int = 0\n"
WITHIN = """
from dataclasses import dataclass, field
from typing import NamedTuple


class Parts(NamedTuple):
    {}: int = 0
    {}: int = 0


@dataclass
class Total:
    count: int = 0
    parts: list = field(default_factory=lambda: [Parts()])
"""
DATACLASS = """
from dataclasses import dataclass


@dataclass
class Total:
    count: int = 0
    old: int = 1
"""
MODEL = DATACLASS.replace("dataclasses import dataclass", "pydantic import BaseModel").replace(
    "@dataclass\nclass Total:", "class Total(BaseModel):"
)
FROZEN = """
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Parts:
    a: list = field(default_factory=list)


@dataclass
class Total:
    count: int = 0
    parts: Parts = field(default_factory=Parts)
"""
NO_DEFAULT = (
    "Parts that hold more than texts and numbers, and they would be without the new fields: new."
)
FREE = "without names, in the order of its fields: "
RENAMED = SECOND.replace("Total", "Seen") + "\n\nTotal = Seen\n"

Run = Callable[..., tuple[int, str, str]]
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write the application with another state class, as its next version."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    # two versions of one length within a second would count as one
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(state: str, options: str = "") -> Path:
        sys.modules.pop("plan_evolving", None)
        file = tmp_path / "plan_evolving.py"
        file.write_text(APPLICATION.format(state=state, options=options))
        return file

    yield write
    sys.modules.pop("plan_evolving", None)


@pytest.fixture
def store(
    begin: Callable[..., Any],  # noqa: F811  # fixture
    write: Write,
    tmp_path: Path,
) -> Write:
    """Write a checkpoint of a version, with ten objects that count from 0 to 9."""

    def store(state: str) -> Path:
        plan = load_application(str(write(state)), []).plan
        _start(tmp_path / "checkpoint", plan)
        book = begin(steps=("count",))
        cls = sys.modules["plan_evolving"].Total
        objects = {}
        for number in range(10):
            objects["count", f"k{number}"] = cls()
            objects["count", f"k{number}"].count = number
        book.write(objects)
        book.close()
        return Path(book.root)

    return store


@pytest.fixture
def stored(store: Write) -> Path:
    """A checkpoint of the first version, with ten objects that count from 0 to 9."""
    return store(FIRST)


def _start(root: Path, plan: Any) -> Any:
    """Note the plan beside the checkpoint, as the start of a run does; return the run's plan."""
    checkpoint = open_checkpoint(root, is_durable=False)
    try:
        return check_compatibility(checkpoint, plan, allow_incompatible=False).plan
    finally:
        checkpoint.release()


def _restart(root: Path, app: Path) -> Any:
    return _start(root, load_application(str(app), []).plan)


def noted(root: Path) -> Any:
    return json.loads((root / "plan.json").read_text())["schemas"]["count"]


def test_the_schema_of_each_state_class_is_noted(stored: Path, write: Write) -> None:
    """All stored objects have an attribute only if every class that stored some had it."""
    _restart(stored, write(FIRST))
    assert noted(stored)["attributes"] == {"count": "int", "old": "int"}
    _restart(stored, write(MORE))
    assert noted(stored) == {
        "version": 1,
        "versions": [1],
        "attributes": {"count": "str", "last": "NoneType"},
        "everywhere": ["count"],
        "slots": [],
        "is_model": False,
    }


def test_only_steps_whose_objects_may_lack_something_are_filled(
    begin: Callable[..., Any],  # noqa: F811  # fixture
    write: Write,
) -> None:
    app = write(FIRST)
    book = begin(steps=("count",))
    book.close()
    assert _restart(book.root, app).evolution == {}
    begin(steps=("count",)).write({("count", "k"): 1})
    # the lock is held by the book, so look without it
    same = look(book.root, load_application(str(write(FIRST)), []).plan)
    assert same.plan.evolution == {}
    more = look(book.root, load_application(str(write(MORE)), []).plan)
    assert more.plan.evolution["count"].may_lack


@pytest.mark.parametrize("slots", ['"count", "old"', '"count",'], ids=["the same", "fewer"])
def test_objects_stored_without_slots_or_with_more_of_them_are_read(
    slots: str, stored: Path, write: Write, wallaroo: Run
) -> None:
    """A plain read of them fails; the trial reads as the run does."""
    app = write(SLOTS.format(slots=slots))

    code, out, _ = wallaroo("plan", app, "--checkpoint", stored, "--try-upgrade")
    assert (code, "10 objects: 10 filled in" in out) == (0, True)
    assert _restart(stored, app).evolution["count"].may_lack

    fewer = write(SLOTS.format(slots='"count",'))
    assert _restart(stored, fewer).evolution["count"].may_lack
    assert _restart(stored, fewer).evolution["count"].may_lack


def test_slots_that_an_earlier_version_did_not_note_are_taken_for_the_same(
    stored: Path, write: Write
) -> None:
    plan = json.loads((stored / "plan.json").read_text())
    del plan["schemas"]["count"]["slots"], plan["crc32"]
    (stored / "plan.json").write_text(json.dumps(plan))

    app = write(SLOTS.format(slots='"count", "old"'))
    assert look(stored, load_application(str(app), []).plan).plan.evolution == {}


def test_plan_names_what_happens_to_each_attribute(
    stored: Path, write: Write, wallaroo: Run
) -> None:
    _restart(stored, write(FIRST))
    code, out, _ = wallaroo("plan", write(MORE), "--checkpoint", stored)
    assert code == 0
    listed = out.partition("  stored objects of step 'count':\n")[2]
    assert listed.splitlines() == [
        "    count: a new object has str, stored ones keep their int",
        "    last: new (NoneType), taken from a new Total if a stored object lacks it",
        "    old: gone; stored objects keep it, unless Total has __slots__",
    ]
    assert "State of step 'count', attribute 'last': new" in out


def test_plan_says_nothing_of_state_that_did_not_change(
    stored: Path, write: Write, wallaroo: Run
) -> None:
    _restart(stored, write(FIRST))
    code, out, _ = wallaroo("plan", write(FIRST), "--checkpoint", stored)
    assert (code, out) == (0, f"checkpoint {stored}, commit 0: compatible\n")


def test_a_version_without_an_upgrade_is_incompatible(
    stored: Path, write: Write, wallaroo: Run
) -> None:
    without = SECOND.partition("\n\n\n@wallaroo")[0]
    code, out, _ = wallaroo("plan", write(without), "--checkpoint", stored)
    assert code == 1
    assert "write @wallaroo.upgrade(Total, from_version=1)" in out


def test_going_back_is_possible_if_nothing_was_stored_since(
    stored: Path, write: Write, wallaroo: Run
) -> None:
    """The newer version may fail before its first commit."""
    _restart(stored, write(SECOND))
    assert noted(stored)["versions"] == [1, 2]
    code, out, _ = wallaroo("plan", write(FIRST), "--checkpoint", stored)
    assert (code, "incompatible" in out) == (0, False)
    _restart(stored, write(FIRST))
    assert noted(stored)["versions"] == [1]


def test_going_back_to_an_older_version_is_incompatible(
    stored: Path,
    write: Write,
    wallaroo: Run,
    begin: Callable[..., Any],  # noqa: F811  # fixture
) -> None:
    _restart(stored, write(SECOND))
    packing = replace(PICKLED, dumps=lambda state: with_version(PICKLED.dumps(state), 2))
    book = begin(steps=("count",))
    book._packing = packing
    book.write({("count", "k3"): sys.modules["plan_evolving"].Total(4)})
    book.close()
    code, out, _ = wallaroo("plan", write(FIRST), "--checkpoint", stored, "--try-upgrade")
    assert code == 1
    assert "was stored by version 2 of Total, which is version 1 here" in out
    assert "stored objects of step" not in out
    assert "tried step" not in out


@pytest.mark.parametrize("state", [SECOND, RENAMED], ids=["same name", "another class"])
def test_every_object_is_tried_and_nothing_written(
    stored: Path, write: Write, wallaroo: Run, state: str
) -> None:
    """The object whose count is 0 cannot be upgraded."""
    before = {path: path.read_bytes() for path in stored.rglob("*") if path.is_file()}
    code, out, _ = wallaroo("plan", write(state), "--checkpoint", stored, "--try-upgrade")
    assert code == 1
    assert "tried step 'count': 10 objects: 9 upgraded, 1 failed\n" in out
    assert "  - key 'k0': ZeroDivisionError: integer division or modulo by zero at " in out
    assert "plan_evolving.py:" in out
    assert {path: path.read_bytes() for path in before} == before


def test_the_trial_counts_what_is_filled_in(stored: Path, write: Write, wallaroo: Run) -> None:
    code, out, _ = wallaroo("plan", write(MORE), "--checkpoint", stored, "--try-upgrade")
    assert code == 0
    assert out.endswith("tried step 'count': 10 objects: 10 filled in\n")
    out = wallaroo("plan", write(FIRST), "--checkpoint", stored, "--try-upgrade", "--json")[1]
    assert json.loads(out)["tried"] == [
        {"step": "count", "as_stored": 10, "filled": 0, "upgraded": 0, "failed": 0, "errors": []}
    ]


def test_a_checkpoint_without_notes_is_filled_in(stored: Path, write: Write) -> None:
    """An earlier version of the package noted no schemas, and no checksum."""
    plan = json.loads((stored / "plan.json").read_text())
    del plan["crc32"]
    plan.pop("schemas")
    (stored / "plan.json").write_text(json.dumps(plan))
    assert _restart(stored, write(FIRST)).evolution["count"].may_lack
    (stored / "plan.json").unlink()
    assert _restart(stored, write(MORE)).evolution["count"].may_lack
    assert noted(stored)["everywhere"] == []


# -- objects pickled by position, and by pydantic


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (STRUCT, SWAPPED, f"Total as their values {FREE}count, old. These are old, count now"),
        (STRUCT, INSERTED, f"Total as their values {FREE}count, old. These are new, count, old"),
        (WITHIN.format("a", "b"), WITHIN.format("b", "a"), f"Parts as their values {FREE}a, b."),
        (FROZEN, FROZEN.replace("list)\n", "list)\n    new: int = 0\n"), NO_DEFAULT),
    ],
    ids=["swapped", "inserted", "within", "frozen"],
)
def test_fields_of_values_without_names_keep_their_order(
    store: Write, write: Write, wallaroo: Run, before: str, after: str, reason: str
) -> None:
    root = store(before)
    assert wallaroo("plan", write(before), "--checkpoint", root)[0] == 0

    code, out, _ = wallaroo("plan", write(after), "--checkpoint", root, "--try-upgrade")

    assert (code, "tried" in out) == (1, False)
    assert f"Step 'count' has stored objects of plan_evolving.{reason}" in out
    way = "@wallaroo.upgrade(Total, from_version=1)" if before == STRUCT else "another name"
    assert way in out
    with pytest.raises(CheckpointError, match=r"those of other fields|without the new fields"):
        _restart(root, write(after))


def test_fields_of_values_without_names_may_follow_and_change_if_none_is_stored(
    store: Write, write: Write, wallaroo: Run
) -> None:
    root = store(STRUCT)
    _restart(root, write(APPENDED))
    code, out, _ = wallaroo("plan", write(STRUCT), "--checkpoint", root)
    assert (code, "count, old, new. These are count, old now" in out) == (1, True)

    unused = STRUCT + "\n\nclass Unused(msgspec.Struct):\n    {}: int\n    {}: int\n"
    _restart(root, write(APPENDED + unused.format("a", "b")[len(STRUCT) :]))
    _restart(root, write(APPENDED + unused.format("b", "a")[len(STRUCT) :]))
    noted = json.loads((root / "plan.json").read_text())["positions"]
    assert noted["plan_evolving.Total"] == ["count", "old", "new"]
    assert noted["plan_evolving.Unused"] == ["b", "a"]


def test_an_upgrade_gets_the_names_of_values_that_were_stored_without(
    store: Write, write: Write, wallaroo: Run
) -> None:
    root = store(STRUCT)
    second = SWAPPED.replace("Struct):", "Struct):\n    state_version: ClassVar[int] = 2")
    app = write(
        "from typing import ClassVar\n"
        + second
        + "\n\n@wallaroo.upgrade(Total, from_version=1)\ndef upgraded(fields):\n"
        + "    assert fields['old'] == 1\n    return Total(**fields)\n"
    )
    code, out, _ = wallaroo("plan", app, "--checkpoint", root, "--try-upgrade")
    assert (code, "10 objects: 10 upgraded\n" in out) == (0, True)
    state = _restart(root, app).evolution["count"]
    assert state.orders == ((1, ("count", "old")), (2, ("old", "count")))


@pytest.mark.parametrize(
    ("before", "after"), [(DATACLASS, MODEL), (MODEL, DATACLASS)], ids=["to", "from"]
)
def test_a_dataclass_may_become_a_model_of_pydantic_and_a_model_a_dataclass(
    store: Write, write: Write, wallaroo: Run, before: str, after: str
) -> None:
    root = store(before)
    app = write(after)
    assert "10 filled in" in wallaroo("plan", app, "--checkpoint", root, "--try-upgrade")[1]
    plan = _restart(root, app)
    (step,) = [step for step in plan.steps if step.step_name == "count"]
    loads = evolving(step, PICKLED, plan.evolution["count"])[1]
    rows = CheckpointReader(root).at()
    states = [loads(raw) for group in range(rows.groups) for raw in rows.group(group).values()]
    assert sorted(state.count for state in states) == [*range(10)]
    assert all(type(state).__name__ == "Total" and state.old == 1 for state in states)
    states[0].count += 1  # pydantic notes which fields are set


def test_an_object_that_has_nothing_of_a_new_one_fails_if_a_run_does_not_fill_it_in(
    store: Write, write: Write, wallaroo: Run
) -> None:
    """Earlier versions did not note whether pydantic pickled the objects."""
    root = store(DATACLASS)
    plan = json.loads((root / "plan.json").read_text())
    del plan["schemas"]["count"]["is_model"], plan["crc32"]
    (root / "plan.json").write_text(json.dumps(plan))
    code, out, _ = wallaroo("plan", write(MODEL), "--checkpoint", root, "--try-upgrade")
    assert (code, "10 failed" in out) == (1, True)
    assert "it has none of the attributes of a new object" in out


# -- rename


def test_a_renamed_step_keeps_its_state(stored: Path, write: Write, wallaroo: Run) -> None:
    app = write(FIRST)
    _restart(stored, app)
    code, out, _ = wallaroo("state", "rename", stored, "count", "total")
    assert (code, out) == (0, "step 'count' is 'total' since commit 1\n")
    assert "9" in wallaroo("state", "get", "k9", "--checkpoint", stored, "--step", "total")[1]

    assert wallaroo("plan", app, "--checkpoint", stored)[0] == 1
    app.write_text(app.read_text().replace('"count"', '"total"'))
    sys.modules.pop("plan_evolving")
    code, out, _ = wallaroo("plan", app, "--checkpoint", stored)
    assert (code, out) == (0, f"checkpoint {stored}, commit 1: compatible\n")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("absent", "total"), "has no state step 'absent'"),
        (("count", "count"), "is in use by another step"),
        (("count", ""), "or empty"),
    ],
)
def test_a_rename_that_is_not_possible_changes_nothing(
    stored: Path, wallaroo: Run, names: tuple[str, str], message: str
) -> None:
    before = (stored / "plan.json").read_bytes()
    code, _, errors = wallaroo("state", "rename", stored, *names)
    assert code == 1
    assert message in errors
    assert (stored / "plan.json").read_bytes() == before


@pytest.mark.parametrize("fault", ["rename.before", "rename.after"])
def test_a_rename_that_was_interrupted_fits_no_application_and_is_finished(
    stored: Path, write: Write, wallaroo: Run, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(name: str) -> None:
        if name == fault:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("wallaroo.checkpoints.maintenance.editing.fault_point", end)
        with contextlib.suppress(KeyboardInterrupt):
            wallaroo("state", "rename", stored, "count", "total")
    app = write(FIRST)
    assert wallaroo("plan", app, "--checkpoint", stored)[0] == 1
    app.write_text(app.read_text().replace('"count"', '"total"'))
    sys.modules.pop("plan_evolving")
    assert wallaroo("plan", app, "--checkpoint", stored)[0] == 1

    assert wallaroo("state", "rename", stored, "count", "total")[0] == 0
    assert wallaroo("plan", app, "--checkpoint", stored)[0] == 0


def test_a_rollback_behind_a_rename_is_refused(stored: Path, write: Write, wallaroo: Run) -> None:
    app = write(FIRST)
    wallaroo("state", "rename", stored, "count", "total")
    app.write_text(app.read_text().replace('"count"', '"total"'))
    code, _, errors = wallaroo("state", "rollback", stored, "--to", "0", app)
    assert code == 1
    assert "step 'total' is 'count' at commit 0: it was renamed since" in errors


def test_that_ttl_time_changed_is_noted_for_all_later_runs(stored: Path, write: Write) -> None:
    """Times that are stored until then are of the former kind, also after further changes."""
    by_event_time = ', ttl=wallaroo.hours(1), ttl_time="event"'
    marked = [
        _restart(stored, write(FIRST, options)).marked_uses
        for options in (by_event_time, ", ttl=wallaroo.hours(1)", "", by_event_time)
    ]
    assert marked == [set(), {"count"}, {"count"}, set()]
