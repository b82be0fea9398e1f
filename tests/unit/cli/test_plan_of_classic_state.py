"""``wallaroo plan`` on the states of a classic application, which its builders create."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.checkpoints.inspection.conftest import begin  # noqa: F401  # fixture
from wallaroo.checkpoints.inspection.compatibility import check_compatibility
from wallaroo.cli.application.loading import load_application
from wallaroo.compat.classic.functions import ClassicState
from wallaroo.engine.blocks.packing import PICKLED
from wallaroo.engine.stores.keyed_state import KeyedState
from wallaroo.errors import WallarooError
from wallaroo.state.checkpoint import open_checkpoint
from wallaroo.user_code.stored_fields import HOLDER

APPLICATION = """
import wallaroo


{state}


class Builder:
    def build(self):
        return {new}


class Update:
    def name(self):
        return "update"

    def compute(self, data, market):
        market.price += 1
        return market.price, True


class Symbol:
    def partition(self, data):
        return data


def application_setup(args):
    builder = wallaroo.ApplicationBuilder("spread")
    builder.new_pipeline("lines", wallaroo.FileSourceConfig("lines", "in.txt"))
    builder.to_state_partition(Update(), Builder(), "market", Symbol())
    builder.to_sink(wallaroo.StdoutSinkConfig())
    return builder.build()
"""
FIRST = """
class Market:
    def __init__(self, price):
        self.price = price
"""
MORE = FIRST + "        self.seen = 0\n"
RENAMED = FIRST.replace("Market", "Book")
OTHER = FIRST + "\n\nclass Total:\n    pass\n"
SECOND = """
class Market:
    state_version = 2

    def __init__(self, price):
        self.cents = price * 100


@wallaroo.upgrade(Market, from_version=1)
def upgraded(fields):
    return Market(fields["price"])
"""

Run = Callable[..., tuple[int, str, str]]
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write the application with another state class or builder, as its next version."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    # two versions of one length within a second would count as one
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(state: str, new: str = "Market(7)") -> Path:
        sys.modules.pop("plan_classic", None)
        file = tmp_path / "plan_classic.py"
        file.write_text(APPLICATION.format(state=state, new=new))
        return file

    yield write
    sys.modules.pop("plan_classic", None)


def _started(root: Path, app: Path) -> Any:
    """Note the plan beside the checkpoint, as the start of a run does; return the run's plan."""
    checkpoint = open_checkpoint(root, is_durable=False)
    try:
        plan = load_application(str(app), []).plan
        return check_compatibility(checkpoint, plan, allow_incompatible=False).plan
    finally:
        checkpoint.release()


@pytest.fixture(params=["today", "in a holder"])
def stored(
    begin: Callable[..., Any],  # noqa: F811  # fixture
    write: Write,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Path:
    """A checkpoint with the state of one key, in today's form or in that of older checkpoints."""
    root = tmp_path / "checkpoint"
    _started(root, write(FIRST))
    state = sys.modules["plan_classic"].Market(3)
    if request.param != "today":
        state, market = ClassicState(), state
        state.value = market
        plan = json.loads((root / "plan.json").read_text())
        del plan["crc32"]
        plan["states"]["market"]["class"] = HOLDER
        plan["schemas"]["market"] |= {"attributes": {"value": "NoneType"}, "everywhere": ["value"]}
        (root / "plan.json").write_text(json.dumps(plan))
    book = begin(steps=("market",))
    book.write({("market", "IBM"): state})
    book.close()
    return Path(book.root)


def _read(plan: Any, stored: Any) -> Any:
    """Return the state object that a run meets for a stored one."""
    step = next(step for stage in plan.stages for step in stage.steps if step.is_stateful)
    raw = PICKLED.dumps(stored)
    return KeyedState(step, lambda key: raw, PICKLED, plan.evolution.get("market")).load("IBM")


def _stored_form(market: Any, is_held: bool) -> Any:
    if not is_held:
        return market
    holder = ClassicState()
    holder.value = market
    return holder


def _is_held(root: Path) -> bool:
    states = json.loads((root / "plan.json").read_text())["states"]
    return bool(states["market"]["class"] == HOLDER)


def test_an_unchanged_state_is_compatible(stored: Path, write: Write, wallaroo: Run) -> None:
    code, out, _ = wallaroo("plan", write(FIRST), "--checkpoint", stored, "--try-upgrade")
    assert code == 0
    assert out.endswith("tried step 'market': 1 object: 1 read as stored\n")


def test_a_new_attribute_is_filled_in(stored: Path, write: Write, wallaroo: Run) -> None:
    is_held = _is_held(stored)
    code, out, _ = wallaroo("plan", write(MORE), "--checkpoint", stored, "--try-upgrade")
    assert code == 0
    assert out.endswith("tried step 'market': 1 object: 1 filled in\n")
    plan = _started(stored, write(MORE))
    market = sys.modules["plan_classic"].Market(3)
    del market.seen
    assert vars(_read(plan, _stored_form(market, is_held))) == {"price": 3, "seen": 0}


def test_an_older_version_is_upgraded(stored: Path, write: Write, wallaroo: Run) -> None:
    code, out, _ = wallaroo("plan", write(SECOND), "--checkpoint", stored, "--try-upgrade")
    assert code == 0
    assert out.endswith("tried step 'market': 1 object: 1 upgraded\n")


@pytest.mark.parametrize(
    ("state", "new"), [(RENAMED, "Book(7)"), (OTHER, "Total()")], ids=["renamed", "another"]
)
def test_another_class_is_refused(
    stored: Path, write: Write, wallaroo: Run, state: str, new: str
) -> None:
    """Plans of older checkpoints do not name the class, so the objects have to be tried."""
    is_held = _is_held(stored)
    options = ("--try-upgrade",) if is_held else ()
    code, out, _ = wallaroo("plan", write(state, new), "--checkpoint", stored, *options)
    assert code == 1
    expected = "1 failed" if is_held else "The state of step 'market' is of class plan_classic"
    assert expected in out


def test_a_builder_that_fails_is_refused_when_the_application_is_built(write: Write) -> None:
    with pytest.raises(WallarooError, match=r"state 'market'.*Its builder raised TypeError"):
        load_application(str(write(FIRST, "Market()")), [])
