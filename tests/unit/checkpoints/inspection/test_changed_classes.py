"""Classes that changed while a checkpoint has objects of theirs: as states, accumulators, events
that wait.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
import pytest

from tests.stored.runner import DATA, HERE, unpack
from wallaroo.checkpoints.inspection.compatibility import look, require_compatible
from wallaroo.checkpoints.inspection.holders import holders_of, misread_in
from wallaroo.checkpoints.inspection.trial import try_state
from wallaroo.dataflow.plan.positions import MODEL, Held, Moved
from wallaroo.errors import CheckpointError

FIELDS = ("account", "number", "at")
HOLDING = {
    "accounts": {"plain", "sessions", "interval", "latest", "windowed", "gathered"},
    "joins": {"open", "open with ttl", "until", "until over"},
}


@dataclass(frozen=True)
class Stored:
    """A checkpoint, the plan of its application, and the module of the class of its events."""

    name: str
    root: Path
    plan: Any
    module: Any

    @property
    def path(self) -> str:
        return f"{self.module.__name__}.Payment"


@pytest.fixture(scope="module", params=HOLDING)
def stored(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stored]:
    folder = tmp_path_factory.mktemp(request.param)
    unpack(DATA / f"{request.param}-micro-batch.tar.xz", folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(HERE)
        application = importlib.import_module(request.param)  # by its name in the data
        plan = application.application_setup(["--ports", "1,2"]).plan
        module = sys.modules[application.Payment.__module__]
        yield Stored(request.param, folder / "checkpoint", plan, module)
    del sys.modules[request.param]


def test_objects_are_found_in_whatever_holds_them(stored: Stored) -> None:
    """Runs of events of a join are pickled within their entry."""
    moved = {stored.path: Moved(FIELDS, FIELDS[::-1], may_call=False)}
    held = holders_of(stored.root, moved, {}, {})
    assert held == {Held(stored.path, False, step) for step in HOLDING[stored.name]}


def refusal(stored: Stored, monkeypatch: pytest.MonkeyPatch, changed: Any) -> str:
    """Return the words about stored objects of a class in whose place another one is."""
    changed.__module__, changed.__qualname__ = stored.path.rsplit(".", 1)
    monkeypatch.setattr(stored.module, changed.__name__, changed)
    with pytest.raises(CheckpointError) as caught:
        require_compatible(stored.root, stored.plan, allow_incompatible=False)
    steps = ", ".join(f"'{step}'" for step in sorted(HOLDING[stored.name]))
    _, subject, words = str(caught.value).partition(
        f"Steps {steps} have stored objects of {stored.path} "
    )
    assert subject
    return words


def test_a_class_of_waiting_events_that_would_misread_them_is_refused(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are stored as dicts, which a frozen dataclass with slots takes for lists."""

    @dataclass(frozen=True, slots=True)
    class Payment:
        account: str
        number: int
        at: int

    assert refusal(stored, monkeypatch, Payment).startswith(
        "with the names of their fields, and "
        "as a frozen dataclass with slots it would read them without. Keep Payment unfrozen, or "
        "without slots; or leave it as it was, and give the new form another name."
    )
    assert look(stored.root, stored.plan).dropped == HOLDING[stored.name]


def test_a_class_of_waiting_events_that_became_a_pydantic_model_is_refused(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model reads an object that was not one as an empty model."""

    class Payment(pydantic.BaseModel):
        account: str
        number: int
        at: int

    assert refusal(stored, monkeypatch, Payment).startswith(
        "from before it became a pydantic "
        "model, and they would be without their values. Give Payment a __setstate__ that reads "
        "both forms; or leave it as it was, and give the new form another name."
    )


class Model(pydantic.BaseModel):
    inner: list[Any] = []


class Plain:
    def __init__(self, inner: Any = None) -> None:
        self.inner = inner


@pytest.mark.parametrize(
    ("make", "moved", "other"),
    [(Model, Moved(MODEL, (), False), Plain), (Plain, Moved((), MODEL, False), Model)],
)
def test_objects_of_a_former_pydantic_model_are_found_within_others(
    make: Any, moved: Moved, other: Any
) -> None:
    """The outermost one, if it is a state, is read by name; those inside it are not."""
    raw = pickle.dumps(make(inner=[make(), 1]), 5)
    assert misread_in(raw, {f"{__name__}.{make.__name__}": moved}) == {
        (f"{__name__}.{make.__name__}", True),
        (f"{__name__}.{make.__name__}", False),
    }
    assert misread_in(pickle.dumps(other(), 5), {f"{__name__}.{other.__name__}": moved}) == set()


def test_a_trial_reads_accumulators_and_waiting_events(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = {trial.step: trial for trial in try_state(stored.root, stored.plan)}
    assert set(trials) >= HOLDING[stored.name]
    assert all(trial.objects == trial.as_stored > 0 for trial in trials.values())

    fields = stored.module.Payment.__dataclass_fields__
    note = copy(fields["at"])
    note.name = "note"
    monkeypatch.setitem(fields, "note", note)
    failed = [trial for trial in try_state(stored.root, stored.plan) if trial.failed]
    assert {trial.step for trial in failed} == HOLDING[stored.name]
    assert "AttributeError: Payment has no stored value for 'note'" in failed[0].errors[0]

    monkeypatch.delattr(stored.module, "Payment")
    failed = [trial for trial in try_state(stored.root, stored.plan) if trial.failed]
    assert {trial.step for trial in failed} == HOLDING[stored.name]
    places = {
        error.partition(": AttributeError: Can't get attribute 'Payment' ")[0]
        for trial in failed
        for error in trial.errors
    }
    assert places <= {"waiting events", *(f"key '{key}'" for key in "abcde")}
