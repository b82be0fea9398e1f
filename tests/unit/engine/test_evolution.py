"""State objects that an earlier version of their class stored."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import wallaroo
from wallaroo.engine.blocks.packing import PICKLED, packing_of
from wallaroo.engine.stores.evolution import stored_version
from wallaroo.engine.stores.keyed_state import KeyedState
from wallaroo.engine.stores.last_use import with_last_use
from wallaroo.engine.stores.ttl_state import keyed_state_of
from wallaroo.errors import UserCodeError
from wallaroo.steps.batching import Waiting
from wallaroo.steps.kinds import StateComputation, Timing
from wallaroo.steps.state_versions import Evolution, evolution_of
from wallaroo.testing import run_state_step
from wallaroo.user_code.stored_fields import stored_fields


@pytest.fixture
def totals() -> Iterator[ModuleType]:
    """The user's module of state classes, which changes between two versions."""
    module = ModuleType("evolving_totals")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def define(module: ModuleType, code: str) -> Any:
    """Replace the module's content; return its class ``Total``."""
    for name in [name for name in vars(module) if not name.startswith("__")]:
        delattr(module, name)
    exec("import dataclasses, datetime\nfrom typing import ClassVar\n" + code, module.__dict__)
    return module.__dict__.get("Total")


def step_of(cls: type[Any], ttl_ns: int | None = None) -> StateComputation[Any, Any, Any]:
    return StateComputation(lambda event, state: None, "total", cls, timing=Timing(ttl_ns=ttl_ns))


def opened(cls: type[Any], raw: bytes, evolution: Evolution | None) -> KeyedState:
    return KeyedState(step_of(cls), {"k": raw}.get, PICKLED, evolution)


LIST = "    last: list = dataclasses.field(default_factory=lambda: [7])\n"
PLAIN = "class Total:\n    def __init__(self):\n        self.count = 0\n"
DATACLASS = "@dataclasses.dataclass\nclass Total:\n    count: int = 0\n"
SLOTS = "class Total:\n    __slots__ = ('count',)\n" + PLAIN[13:]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (PLAIN, PLAIN + "        self.last = [7]\n"),
        (PLAIN, "class Total:\n    last = None\n" + PLAIN[13:] + "        self.last = [7]\n"),
        (DATACLASS, DATACLASS + LIST),
        (SLOTS, SLOTS.replace("('count',)", "'count', 'last'") + "        self.last = [7]\n"),
        (SLOTS, SLOTS.replace("('count',)", "'last', 'count'") + "        self.last = [7]\n"),
    ],
    ids=["__init__", "class attribute", "default_factory", "slots", "slots in another order"],
)
def test_a_new_attribute_is_filled_in(totals: ModuleType, before: str, after: str) -> None:
    """Each object gets a value of its own, and is stored with it."""
    old = define(totals, before)()
    old.count = 3
    raw = pickle.dumps(old, 5)
    cls = define(totals, after)
    keyed = KeyedState(step_of(cls), {"k": raw, "l": raw}.get, PICKLED, Evolution(may_lack=True))

    first, second = keyed.load("k"), keyed.load("l")

    assert (first.count, first.last) == (3, [7])
    assert first.last is not second.last
    assert pickle.loads(dict(keyed.changes())["k"]).last == [7]


def test_nothing_is_filled_in_if_all_stored_objects_have_all_attributes(
    totals: ModuleType,
) -> None:
    cls = define(totals, PLAIN)
    assert opened(cls, pickle.dumps(cls(), 5), None)._loads is PICKLED.loads


def test_what_a_class_leaves_out_of_its_stored_form_is_not_filled_in(totals: ModuleType) -> None:
    code = PLAIN + (
        "        self.cache = {}\n"
        "    def __getstate__(self):\n        return {'count': self.count}\n"
    )
    cls = define(totals, code)
    state = opened(cls, pickle.dumps(cls(), 5), Evolution(may_lack=True)).load("k")
    assert not hasattr(state, "cache")


def test_an_attribute_that_is_gone_is_kept(totals: ModuleType) -> None:
    old = define(totals, PLAIN + "        self.last = 5\n")()
    raw = pickle.dumps(old, 5)
    state = opened(define(totals, PLAIN), raw, Evolution(may_lack=True)).load("k")
    assert vars(state) == {"count": 0, "last": 5}


def test_a_slot_that_is_gone_is_dropped(totals: ModuleType) -> None:
    """Without this an object could not be read at all."""
    old = define(totals, "class Total:\n    __slots__ = ('count', 'last')\n")()
    old.count, old.last = 4, 5
    raw = pickle.dumps(old, 5)
    state = opened(define(totals, SLOTS), raw, Evolution(may_lack=True)).load("k")
    assert state.count == 4
    assert not hasattr(state, "last")


def test_state_that_the_application_packs_itself_is_filled_in(totals: ModuleType) -> None:
    cls = define(totals, PLAIN + "        self.last = 5\n")
    old = cls()
    del old.last
    packing = packing_of((lambda state: repr(vars(state)).encode(), lambda raw: _from(cls, raw)))
    keyed = KeyedState(step_of(cls), {"k": b"{'count': 2}"}.get, packing, Evolution(may_lack=True))
    assert vars(keyed.load("k")) == {"count": 2, "last": 5}


def _from(cls: type[Any], raw: bytes) -> Any:
    state = cls.__new__(cls)
    vars(state).update(eval(raw))
    return state


# -- upgrades

SECOND = (
    "class Total:\n    state_version = 2\n"
    "    def __init__(self, seen=0):\n        self.seen = seen\n"
)


def upgraded(totals: ModuleType, code: str = SECOND, old: str = PLAIN) -> tuple[Any, bytes]:
    """Return the new class, with an upgrade, and an object that the old one stored."""
    before = define(totals, old)()
    before.count = 3
    raw = pickle.dumps(before, 5)
    cls = define(totals, code)
    wallaroo.upgrade(cls, from_version=1)(lambda fields: cls(fields["count"] * 10))
    return cls, raw


@pytest.mark.parametrize("ttl_ns", [None, 10], ids=["kept", "expiring"])
def test_an_object_of_an_older_version_is_upgraded_once(
    totals: ModuleType, ttl_ns: int | None
) -> None:
    """Its new form carries the version, and is read as it is from then on."""
    cls, raw = upgraded(totals)
    step = step_of(cls, ttl_ns)
    if ttl_ns:
        raw = with_last_use(raw, 5)
    keyed = keyed_state_of(step, {"k": raw}.get, PICKLED, evolution_of(cls, False))

    assert vars(keyed.load("k")) == {"seen": 30}
    stored = dict(keyed.changes())["k"]
    assert stored is not None
    assert stored_version(stored) == 2
    again = keyed_state_of(step, {"k": stored}.get, PICKLED, evolution_of(cls, False))
    assert vars(again.load("k")) == {"seen": 30}
    assert vars(pickle.loads(stored)) == {"seen": 30}
    assert list(again.changes()) == []


def test_the_old_class_need_not_exist(totals: ModuleType) -> None:
    cls, raw = upgraded(totals, SECOND.replace("Total", "Seen") + "Total = Seen\n")
    del totals.Total
    state = opened(cls, raw, evolution_of(cls, False)).load("k")
    assert (type(state).__name__, state.seen) == ("Seen", 30)


def test_fields_are_of_their_own_classes_or_stand_ins() -> None:
    """What can be imported is; of the rest the attributes are there."""
    module = ModuleType("gone_module")
    sys.modules["gone_module"] = module
    define(module, PLAIN + "class Inner:\n    pass\n")
    old = module.Total()
    old.when = __import__("datetime").date(2026, 1, 2)
    old.inner = module.Inner()
    old.inner.name = "x"
    raw = pickle.dumps(old, 5)
    del sys.modules["gone_module"]

    name, fields = stored_fields(raw)

    assert name == "gone_module.Total"
    assert (fields["count"], str(fields["when"]), fields["inner"].name) == (0, "2026-01-02", "x")


@pytest.mark.parametrize(
    ("value", "fields"),
    [({"a": 1}, {"a": 1}), (7, {"value": 7}), ([1], {"value": [1]})],
)
def test_values_without_attributes_have_fields_as_well(value: Any, fields: dict[str, Any]) -> None:
    assert stored_fields(pickle.dumps(value, 5))[1] == fields


def test_a_version_without_an_upgrade_stops_with_the_way_out(totals: ModuleType) -> None:
    raw = pickle.dumps(define(totals, PLAIN)(), 5)
    cls = define(totals, SECOND)
    with pytest.raises(UserCodeError, match=r"Write @wallaroo.upgrade\(Total, from_version=1\)"):
        opened(cls, raw, None).load("k")


def test_a_newer_version_stops_with_the_way_out(totals: ModuleType) -> None:
    cls, raw = upgraded(totals)
    keyed = opened(cls, raw, evolution_of(cls, False))
    keyed.load("k")
    newer = dict(keyed.changes())["k"]
    cls.state_version = 3
    third = opened(cls, raw, evolution_of(cls, False))
    third.live["k"] = cls()
    newest = dict(third.changes())["k"]
    cls.state_version = 2
    assert newer is not None
    assert newest is not None
    with pytest.raises(UserCodeError, match="Run the newer application"):
        opened(cls, newest, evolution_of(cls, False)).load("k")


def test_an_upgrade_that_returns_something_else_is_named(totals: ModuleType) -> None:
    cls, raw = upgraded(totals)
    wallaroo.upgrade(cls, from_version=1)(lambda fields: None)
    with pytest.raises(UserCodeError, match="the upgrade returned None, not a Total"):
        opened(cls, raw, evolution_of(cls, False)).load("k")


@pytest.mark.parametrize(
    ("is_of_step", "way"),
    [(False, "@wallaroo.upgrade"), (True, "beside new ones under other names")],
)
def test_an_object_whose_class_is_gone_is_not_blamed_on_a_function(
    totals: ModuleType, is_of_step: bool, way: str
) -> None:
    """A step's own state has a class of this package, and events in it."""
    old = define(totals, PLAIN)()
    waiting: Waiting[Any] = Waiting()
    waiting.events.append(old)
    raw = pickle.dumps(waiting if is_of_step else old, 5)
    define(totals, PLAIN.replace("Total", "Other"))
    with pytest.raises(UserCodeError) as caught:
        opened(Waiting if is_of_step else vars(totals)["Other"], raw, None).load("k")
    assert caught.value.cause.startswith("cannot be read back: AttributeError: Can't get")
    assert caught.value.event == "state of key 'k'"
    assert way in caught.value.fix
    assert "--try-upgrade" in caught.value.fix


def test_an_enum_without_a_stored_member_is_not_blamed_on_a_function(totals: ModuleType) -> None:
    """A function of the standard library raises that error."""
    code = PLAIN + "        self.level = Level.B\n\nimport enum\n"
    levels = "class Level(enum.Enum):\n    A = 1\n"
    raw = pickle.dumps(define(totals, code + levels + "    B = 2\n")(), 5)
    cls = define(totals, code.replace("Level.B", "Level.A") + levels)
    with pytest.raises(UserCodeError, match="cannot be read back: ValueError: 2 is not a valid"):
        opened(cls, raw, None).load("k")


def test_the_differences_travel_to_workers(totals: ModuleType) -> None:
    """An upgrade function may be defined anywhere, and is sent with the plan."""
    cls, raw = upgraded(totals)
    sent = pickle.loads(pickle.dumps(evolution_of(cls, False)))
    assert opened(cls, raw, sent).load("k").seen == 30


def test_a_state_step_under_test_begins_with_objects_of_today(totals: ModuleType) -> None:
    cls = define(totals, SECOND)
    step = StateComputation(lambda event, state: state.seen, "total", cls)
    outputs, states = run_state_step(step, [("k", 1)], {"k": cls(4)})
    assert outputs == [("k", 4)]
    assert states["k"].seen == 4


@pytest.mark.parametrize(
    ("code", "from_version", "message"),
    [
        (PLAIN, 1, "Total is version 1: there is none before it"),
        (SECOND, 2, "from_version=2 is not before version 2"),
        (SECOND, "1", "from_version='1' is not before version 2"),
    ],
)
def test_an_upgrade_from_nowhere_is_refused(
    totals: ModuleType, code: str, from_version: Any, message: str
) -> None:
    with pytest.raises(wallaroo.WallarooParameterError, match=message):
        wallaroo.upgrade(define(totals, code), from_version=from_version)


# -- libraries of classes


def test_a_pydantic_model_is_filled_in_and_upgraded(totals: ModuleType) -> None:
    pytest.importorskip("pydantic")
    head = "import pydantic\nclass Total(pydantic.BaseModel):\n    count: int = 0\n"
    _filled_and_upgraded(totals, head, "    last: list = pydantic.Field(default_factory=list)\n")


@pytest.mark.parametrize("slots", [True, False])
def test_an_attrs_class_is_filled_in_and_upgraded(totals: ModuleType, slots: bool) -> None:
    pytest.importorskip("attr")
    head = f"import attr\n@attr.define(slots={slots})\nclass Total:\n    count: int = 0\n"
    _filled_and_upgraded(totals, head, "    last: list = attr.Factory(list)\n")


@pytest.mark.parametrize("slots", [True, False])
def test_a_dataclass_is_filled_in_and_upgraded(totals: ModuleType, slots: bool) -> None:
    head = f"@dataclasses.dataclass(slots={slots})\nclass Total:\n    count: int = 0\n"
    _filled_and_upgraded(totals, head, "    last: list = dataclasses.field(default_factory=list)\n")


def _filled_and_upgraded(totals: ModuleType, head: str, new: str) -> None:
    raw = pickle.dumps(define(totals, head)(count=3), 5)
    state = opened(define(totals, head + new), raw, Evolution(may_lack=True)).load("k")
    assert (state.count, state.last) == (3, [])
    cls = define(totals, head + new + "    state_version: ClassVar[int] = 2\n")
    wallaroo.upgrade(cls, from_version=1)(lambda fields: cls(last=[fields["count"]]))
    assert opened(cls, raw, evolution_of(cls, False)).load("k").last == [3]
