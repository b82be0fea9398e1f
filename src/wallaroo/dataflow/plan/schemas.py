"""Schemas of state classes in a plan.json, and their comparison.

A checkpoint may hold objects of every class version that its application had, since an object is
rewritten only when an event changes it. So the notes cover all of them: ``versions`` that may
occur, and ``everywhere``, the attributes common to all; none if some were stored with other slots,
as slots missing from the pickle cannot be filled in. ``attributes`` are those of a new object, with
type names, and ``slots`` those that are slots. ``orders``: by version, the fields of a class
pickled by position. ``is_model``: pydantic pickles them.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from wallaroo.dataflow.plan.accumulators import ANOTHER_NAME
from wallaroo.dataflow.plan.model import Plan
from wallaroo.dataflow.plan.positions import is_base_model, positions_of
from wallaroo.steps.kinds import Step, state_maker
from wallaroo.steps.state_versions import FIRST, evolution_of, registered, version_of
from wallaroo.steps.windows.step import WindowStep
from wallaroo.user_code.stored_fields import HOLDER, fields_of, slots_of

Schema = dict[str, Any]
NONE = "NoneType"


@dataclass(frozen=True, slots=True)
class Fate:
    """Fate of one attribute of a step's stored objects.

    ``is_same``: it stays as it is.
    """

    attribute: str
    what: str
    is_same: bool = False


def evolving_steps(plan: Plan) -> dict[str, Any]:
    """Return the steps whose state objects are of a class of the user's, by name."""
    steps = (step for stage in plan.stages for step in stage.steps if _has_objects(step))
    return {step.step_name: step for step in steps}


def _has_objects(step: Step) -> bool:
    if not step.is_stateful or isinstance(step, WindowStep):
        return False
    is_class = inspect.isclass(getattr(step, "state_class", None))
    return is_class and getattr(step, "layout", None) is None


def noted_schemas(plan: Plan) -> dict[str, Schema]:
    """Return the schema of each step's state, by name; a class that cannot be called has none."""
    noted = {}
    for name, step in evolving_steps(plan).items():
        attributes = _attributes(step, plan.serializer)
        if attributes is None:
            continue
        version = version_of(step.state_class)
        noted[name] = {
            "version": version,
            "versions": [version],
            "attributes": attributes,
            "everywhere": sorted(attributes),
            "slots": sorted(attributes.keys() & {*slots_of(step.state_class)}),
            "is_model": is_base_model(step.state_class),
        }
        if order := positions_of(step.state_class):
            noted[name]["orders"] = {str(version): list(order)}
        if upgrades := sorted(registered(step.state_class)):
            noted[name]["upgrades"] = upgrades
    return noted


def _attributes(step: Step, serializer: tuple[Any, Any] | None) -> dict[str, str] | None:
    dumps, loads = serializer or (pickle.dumps, pickle.loads)
    try:
        fields = fields_of(loads(dumps(state_maker(step)())))
    except Exception:  # noqa: BLE001  # the user's code; the rules of the build report it
        return None
    return {name: type(value).__name__ for name, value in sorted(fields.items())}


def merged(
    now: Mapping[str, Schema], before: Mapping[str, Any], dropped: Collection[str] = ()
) -> dict[str, Schema]:
    """Return the schemas to note over a checkpoint that has commits under the plan ``before``."""
    notes = before.get("schemas", {})
    return {
        name: _both(schema, notes.get(name))
        if name in before["states"] and name not in dropped
        else schema
        for name, schema in now.items()
    }


def _both(now: Schema, was: Schema | None) -> Schema:
    if was is None:
        versions = sorted({FIRST, now["version"]})
        return {**now, "versions": versions, "everywhere": []}
    slots = now["slots"]
    has_other_slots = slots and slots != was.get("slots", slots)  # earlier versions noted none
    is_other_kind = now["is_model"] != was.get("is_model", now["is_model"])  # the same
    everywhere = {*was["everywhere"]} & now["attributes"].keys()
    orders = {**was.get("orders", {}), **now.get("orders", {})}
    return {
        **now,
        "versions": sorted({*was["versions"], now["version"]}),
        "everywhere": [] if has_other_slots or is_other_kind else sorted(everywhere),
        **({"orders": orders} if orders else {}),
    }


def with_evolution(plan: Plan, schemas: Mapping[str, Schema]) -> Plan:
    """Return the plan with the differences that stored objects may have."""
    evolution = {}
    for name, step in evolving_steps(plan).items():
        schema = schemas.get(name)
        may_lack = schema is None or schema["attributes"].keys() > {*schema["everywhere"]}
        if may_lack or registered(step.state_class):
            orders = {} if schema is None else schema.get("orders", {})
            evolution[name] = evolution_of(step.state_class, may_lack, orders)
    return replace(plan, evolution=evolution)


def accepts_class(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether all stored objects of a step are of versions that are upgraded.

    The class inside a holder was not noted: its objects are compared when read.
    """
    if before["states"][name]["class"] == HOLDER:
        return True
    now = after.get("schemas", {}).get(name, {})
    stored = _stored_versions(before, name)
    return bool(now) and stored <= {*now.get("upgrades", ())} - {now["version"]}


def upgrade_for(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return the sentences on how a step keeps objects of another class; "" for windows."""
    if " over " in before["states"][name]["class"]:
        return ""
    path = after["states"][name]["class"]
    schema = after.get("schemas", {}).get(name)
    if schema is None or path.startswith("builtins."):
        return f" To continue, {ANOTHER_NAME}."
    cls = path.rpartition(".")[2]
    stored = sorted(_stored_versions(before, name))
    version = max(stored[-1] + 1, schema["version"])
    upgrades = ", ".join(f"@wallaroo.upgrade({cls}, from_version={each})" for each in stored)
    given = "" if schema["version"] == version else f"give {cls} state_version = {version}, and "
    return (
        f" To keep it, {given}write {upgrades}: it is called with the attributes of each stored "
        f"object. Or {ANOTHER_NAME}."
    )


def in_doubt(now: Mapping[str, Schema], before: Mapping[str, Any]) -> list[str]:
    """Return the steps whose stored objects may be unreadable, according to the notes.

    They may be absent: a run may have ended before its first commit, or upgraded all.
    """
    notes = before.get("schemas", {})
    return [
        name
        for name, schema in now.items()
        if name in notes
        and {*notes[name]["versions"]} - {schema["version"], *schema.get("upgrades", ())}
    ]


def refused_versions(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield the steps with stored objects that cannot be read, and the reasons."""
    for name, now in after.get("schemas", {}).items():
        if name not in before["states"]:
            continue
        cls = after["states"][name]["class"].rpartition(".")[2]
        for version in sorted(_stored_versions(before, name)):
            if version > now["version"]:
                yield (
                    name,
                    f"The state of step '{name}' was stored by version {version} of {cls}, which "
                    f"is version {now['version']} here: run the newer application.",
                )
            elif version < now["version"] and version not in now.get("upgrades", ()):
                yield (
                    name,
                    f"The state of step '{name}' was stored by version {version} of its class, "
                    f"{cls} is version {now['version']} now, and nothing is registered to upgrade "
                    f"it: write @wallaroo.upgrade({cls}, from_version={version}).",
                )


def _stored_versions(before: Mapping[str, Any], name: str) -> set[int]:
    return {*before.get("schemas", {}).get(name, {"versions": [FIRST]})["versions"]}


def changed_attributes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each attribute that only stored objects, or only new ones, have."""
    for name, each in fates_of(before, after).items():
        was = before["schemas"][name]["version"]
        now = after["schemas"][name]["version"]
        if was != now:
            yield (
                f"The state of step '{name}' was stored by version {was} of its class, which is "
                f"version {now} now: an object is upgraded when an event meets it, or in the "
                f"background."
            )
            continue
        for fate in each:
            if not fate.is_same:
                yield f"State of step '{name}', attribute '{fate.attribute}': {fate.what}."


def fates_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Fate, ...]]:
    """Return the fate of each attribute, for steps whose attributes change."""
    by_step = {}
    for name, now in after.get("schemas", {}).items():
        was = before.get("schemas", {}).get(name)
        if was is None or before["states"].get(name, {}).get("class") == HOLDER:
            continue
        each = tuple(fates(was["attributes"], now, after["states"][name]["class"]))
        if was["version"] == now["version"] and not all(fate.is_same for fate in each):
            by_step[name] = each
        elif was["version"] != now["version"]:
            by_step[name] = tuple(
                Fate(name, f"passed to the upgrade from version {was['version']}")
                for name in sorted(was["attributes"])
            )
    return by_step


def fates(stored: Mapping[str, str], now: Schema, path: str) -> Iterator[Fate]:
    """Yield the fate of each attribute without an upgrade.

    ``stored`` are the attributes of stored objects with their types.
    """
    cls = path.rpartition(".")[2]
    for name in sorted({*stored, *now["attributes"]}):
        was = stored.get(name)
        new = now["attributes"].get(name)
        if was is None:
            yield Fate(name, f"new ({new}), taken from a new {cls} if a stored object lacks it")
        elif new is None:
            yield Fate(name, f"gone; stored objects keep it, unless {cls} has __slots__")
        elif was != new and NONE not in (was, new):
            yield Fate(name, f"a new object has {new}, stored ones keep their {was}")
        else:
            yield Fate(name, "as stored", is_same=True)
