"""A plan as JSON in a checkpoint, and its comparison with another.

The comparison decides whether another plan may continue from the checkpoint.  State belongs to
(state step, key) within key groups, unread input to a source's name, unsent output to a sink
(by its id, ``plan.sink_ids``).  A plan may continue when nothing that a checkpoint holds loses its
owner or changes its meaning.  All else (stateless steps, stages, addresses of named sinks, new
sources, sinks and state steps) may change freely between two runs, because no event is ever between
two stages when a batch is committed.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from wallaroo.dataflow.plan import model, sink_ids, timing
from wallaroo.dataflow.plan.accumulators import (
    ANOTHER_NAME,
    changed_accumulators,
    changed_aggregations,
    in_words,
    noted_accumulators,
    noted_aggregation,
)
from wallaroo.dataflow.plan.join_sides import changed_joins, noted_joins, refused_joins
from wallaroo.dataflow.plan.positions import Former, Positions
from wallaroo.dataflow.plan.schemas import (
    Schema,
    accepts_class,
    changed_attributes,
    noted_schemas,
    refused_versions,
    upgrade_for,
)
from wallaroo.steps.batching import BatchEvents
from wallaroo.steps.joins.step import ORDER, Dedupe, InOrder
from wallaroo.steps.kinds import STOP
from wallaroo.user_code.moved_modules import current_class
from wallaroo.user_code.references import importable_module

FORMAT = 1
COLLECTED = "collect()"  # replaces an extractor
_WAITING = frozenset({InOrder.kind, BatchEvents.kind})
# in the generated name of an unnamed step
_LINE = re.compile(r" at [^/\s\"]+\.py:\d+(:\d+)?(?=$|\"|\\)")


class Verdict(Enum):
    """Answer to whether a checkpoint can be continued under another plan."""

    SAME = "compatible"
    CHANGED = "compatible with changes"
    INCOMPATIBLE = "incompatible"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The verdict, and its reasons as sentences.

    For CHANGED they list new and removed parts.
    """

    verdict: Verdict
    reasons: tuple[str, ...] = ()


def dumps(
    plan: model.Plan,
    gone: sink_ids.Noted | None = None,
    schemas: Mapping[str, Schema] | None = None,
    positions: Positions | None = None,
    former: Sequence[Former] = (),
) -> str:
    """Describe a plan as canonical JSON.

    ``gone``: sinks that only a checkpoint has; ``schemas``: those of all state that it may hold;
    ``positions``: the same for classes; ``former``: those of older commits.
    """
    described = {**describe(plan), **({"gone": gone} if gone else {})}
    if schemas:
        described["schemas"] = schemas
    if positions:
        described["positions"] = positions
    if former:
        described["former"] = former
    return json.dumps(described, indent=1, sort_keys=True)


def with_old_ids(plan: model.Plan, old: str, has_commits: bool = True) -> sink_ids.ReconciledSinks:
    """Assign a plan's sinks the ids that they have in a checkpoint made under the plan ``old``."""
    shape = [_shape(stage) for stage in plan.stages]
    return sink_ids.reconcile(plan, json.loads(old), shape, has_commits)


def describe(plan: model.Plan) -> dict[str, Any]:
    """Describe the relevant part of a plan: names and settings, no code."""
    steps = {step.step_name: step for stage in plan.stages for step in stage.steps}
    joins = noted_joins(plan)
    layouts = timing.noted_layouts(plan)
    schemas = noted_schemas(plan)
    on_error = {step.step_name: step.on_error for step in plan.steps if step.on_error != STOP}
    return {
        "format": FORMAT,
        "application": plan.application,
        "key_groups": plan.key_groups,
        "sources": {
            source.config.name: {
                "pipeline": source.pipeline,
                "kind": source.config.kind,
                "header_length": source.config.wire_framing.header_length,
                "length_fmt": source.config.wire_framing.length_fmt,
                **({"exclusive": words} if (words := source.config.exclusive) else {}),
                **({"reads": sorted(reads)} if (reads := source.config.reads) else {}),
            }
            for source in plan.sources
        },
        "sinks": {sink.name: sink_ids.noted(sink.config) for sink in plan.sinks},
        "states": {
            name: {
                "class": _kept(step),
                "keys": sorted(_keys_in_front(plan, name)),
                **({"accumulators": form} if (form := noted_accumulators(step)) else {}),
                **({"aggregation": whole} if (whole := noted_aggregation(step)) else {}),
            }
            for name, step in steps.items()
            if step.is_stateful
        },
        "steps": {name: step.kind for name, step in steps.items()},
        "shape": [_shape(stage) for stage in plan.stages],
        "timing": timing.noted_timing(plan),
        **({"on_error": on_error} if on_error else {}),
        **({"joins": joins} if joins else {}),
        **({"layouts": layouts} if layouts else {}),
        **({"schemas": schemas} if schemas else {}),
    }


def renamed(text: str, step: str, new: str, *, is_done: bool) -> str:
    """Return a plan's JSON with a state step under a new name.

    Until that ``is_done``, its state is noted under both names, so that no application fits.
    """
    plan = json.loads(text)
    if not is_done:
        plan["states"][new] = plan["states"][step]
        return json.dumps(plan, indent=1, sort_keys=True)
    for part in ("states", "steps", "on_error", "joins", "layouts", "schemas", "timing"):
        if step in plan.get(part, {}):
            plan[part][new] = plan[part].pop(step)
    for stage in plan["shape"]:
        stage["steps"] = [new if name == step else name for name in stage["steps"]]
    return json.dumps(plan, indent=1, sort_keys=True)


def _kept(step: Any) -> str:
    """Return the class of a step's state; for windows also their specification."""
    cls = getattr(step, "state_class", object)
    own = f"{importable_module(cls.__module__)}.{cls.__qualname__}"
    return f"{own} over {step.kept_for}" if step.kept_for is not None else own


def _keys_in_front(plan: model.Plan, name: str) -> set[str]:
    """Return the extractors (or ``collect()``) that provide state step ``name`` with keys."""
    keys: set[str] = set()
    todo = [
        stage.id for stage in plan.stages if any(step.step_name == name for step in stage.steps)
    ]
    while todo:
        following = todo.pop()
        entry = plan.stages[following].entry
        if isinstance(entry, model.BranchEntry):
            todo += entry.stages
        for stage in plan.stages:
            if not isinstance(stage.exit, model.ToExchange) or stage.exit.stage != following:
                continue
            if stage.exit.keeps_key:
                todo.append(stage.id)
            else:
                keys.add(stage.exit.extractor.step_name if stage.exit.extractor else COLLECTED)
    return keys


def _shape(stage: model.Stage) -> dict[str, Any]:
    match stage.entry:
        case model.SourceEntry(source=source):
            entry = f"source {source}"
        case model.BranchEntry(stages=parents):
            entry = f"stage {', '.join(map(str, parents))}"
        case _:
            entry = "shuffle"
    leave = stage.exit
    to = (
        [f"sink {sink}" for sink in leave.sinks]
        if isinstance(leave, model.ToSinks)
        else [f"stage {following}" for following in model.following_of(stage)]
    )
    return {"from": entry, "steps": [step.step_name for step in stage.steps], "to": to}


def abandoned(old: str, new: str) -> frozenset[str]:
    """Return the state steps whose state is dropped by continuing a checkpoint regardless.

    It was made under the plan ``old``, and is continued under ``new`` although it does not fit.
    """
    before = json.loads(old)
    after = json.loads(new)
    joins = refused_joins(before.get("joins", {}), after.get("joins", {}))
    layouts = timing.refused_layouts(before.get("layouts", {}), after.get("layouts", {}))
    return frozenset(
        {
            *(name for name, _ in _states(before, after)),
            *(name for name, _ in refused_versions(before, after)),
            *(name for name, _ in joins),
            *(name for name, _ in layouts),
        }
    )


def lasting(
    before: dict[str, Any], after: dict[str, Any], waits: Callable[[str], bool] = lambda sink: True
) -> str:
    """Return a clause about a difference that no run can continue with; "" if there is none."""
    if before["key_groups"] != after["key_groups"]:
        return "the number of key groups cannot change"
    for name, now in after["sources"].items():
        if now["kind"] != before["sources"].get(name, now)["kind"]:
            return f"source '{name}' cannot become one of another kind under its name"
    for name, _, _ in _reformed_sinks(before, after, waits):
        return f"output that waits for sink '{name}' cannot be read in another form"
    return ""


def compare(
    old: str,
    new: str,
    unclear: Sequence[str] = (),
    waits: Callable[[str], bool] = lambda sink: True,
) -> Comparison:
    """Judge whether a checkpoint made under the plan ``old`` can be continued under ``new``.

    Both are texts from ``dumps``, the new one of a plan that is ``with_old_ids``, which left
    ``unclear``; ``waits`` returns whether output of a sink may still be undelivered.
    """
    before = json.loads(old)
    after = json.loads(new)
    if before == after:
        return Comparison(Verdict.SAME)
    if before.get("format") != after.get("format"):
        what = (
            f"The plan was written in format {before.get('format')}, this version writes "
            f"{after.get('format')}."
        )
        return Comparison(Verdict.INCOMPATIBLE, (what,))
    layouts = before.get("layouts", {}), after.get("layouts", {})
    reasons = (
        *_whole(before, after),
        *_sources(before, after),
        *unclear,
        *_sinks(before, after, waits),
        *(reason for _, reason in _states(before, after)),
        *(reason for _, reason in refused_versions(before, after)),
        *(reason for _, reason in refused_joins(before.get("joins", {}), after.get("joins", {}))),
        *(reason for _, reason in timing.refused_layouts(*layouts)),
    )
    if reasons:
        return Comparison(Verdict.INCOMPATIBLE, reasons)
    changes = [*_changes(before, after)]
    if not changes and before["shape"] == after["shape"]:
        return Comparison(Verdict.SAME)  # an earlier version had fewer notes
    if not changes:
        is_moved = _without_lines(before["shape"]) == _without_lines(after["shape"])
        moved = "Steps that are named after their line are on another one."
        changes = [moved if is_moved else "The same steps are laid out in other stages."]
    return Comparison(Verdict.CHANGED, tuple(changes))


def _without_lines(shape: Any) -> str:
    return _LINE.sub("", json.dumps(shape))


def _whole(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    if before["application"] != after["application"]:
        yield (
            f"It belongs to the application '{before['application']}', this is "
            f"'{after['application']}'. If that is its new name, nothing is lost by it: only what "
            f"else is listed here would be dropped."
        )
    if before["key_groups"] != after["key_groups"]:
        yield (
            f"Its state is laid out in {before['key_groups']} key groups, this plan has "
            f"{after['key_groups']}."
        )


def _sources(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for name, was in before["sources"].items():
        now = after["sources"].get(name)
        if now is None:
            yield f"Source '{name}' is gone, and input it has accepted may not be processed yet."
        elif now["kind"] != was["kind"]:
            yield (
                f"Source '{name}' was a {was['kind']} source and is a {now['kind']} source now: "
                f"their positions do not compare. Name the new one otherwise: it begins at its own "
                f"beginning then."
            )
        elif (now["header_length"], now["length_fmt"]) != (was["header_length"], was["length_fmt"]):
            header = f"{was['header_length']} bytes, {was['length_fmt']!r}"
            yield f"Source '{name}' has another header than the frames it has accepted ({header})."


def _sinks(
    before: dict[str, Any], after: dict[str, Any], waits: Callable[[str], bool]
) -> Iterator[str]:
    for name, was in before["sinks"].items():
        now = after["sinks"].get(name)
        if (now is not None and now["kind"] == was["kind"]) or not waits(name):
            continue
        where = sink_ids.place_of(was)
        yield (
            f"Sink '{name}'{f' ({where})' if where else ''} is gone, and output committed to it "
            f"may not have left yet. If it was moved, name it: "
            f"name='{was.get('name', name)}' in its configuration."
        )
    for name, was, now in _reformed_sinks(before, after, waits):
        yield (
            f"Sink '{name}' wrote {sink_ids.form_of(was)} and writes {sink_ids.form_of(now)} now, "
            f"and output in the former form may not have left yet. Start the former version, stop "
            f"it (Ctrl-C, SIGTERM) once `wallaroo status` shows that nothing waits, then start "
            f"this one. Or give this one another name: it is another sink then, and "
            f"--allow-incompatible leaves the former output in the outbox."
        )
    yield from _unmovable_sinks(before, after)


def _unmovable_sinks(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for name, was in before["sinks"].items():
        now = after["sinks"].get(name, {})
        bound_by = now.get("bound_by")
        if bound_by and "target" in was and was["target"] != now["target"]:
            yield (
                f"Sink '{name}' ({bound_by}) wrote to {sink_ids.place_of(was)} and writes to "
                f"{sink_ids.place_of(now)} now, and another receiver lacks the bytes that have "
                f"left. Run the former version until nothing waits, then give this sink another "
                f"name: it begins at byte 0 then. If the same receiver moved, with its bytes, "
                f"--allow-incompatible continues."
            )


def _reformed_sinks(
    before: dict[str, Any], after: dict[str, Any], waits: Callable[[str], bool]
) -> Iterator[tuple[str, dict[str, str], dict[str, str]]]:
    """Yield sinks whose waiting output has another form than now: the old and the new one.

    Output may also wait for a sink that was missing meanwhile.
    """
    for name, was in {**before.get("gone", {}), **before["sinks"]}.items():
        now = after["sinks"].get(name)
        is_same_kind = now is not None and now["kind"] == was["kind"]
        if is_same_kind and sink_ids.has_other_form(was, now) and waits(name):
            yield name, was, now


def _states(before: dict[str, Any], after: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, was in before["states"].items():
        now = after["states"].get(name)
        if now is None:
            yield name, _gone(name, before["steps"].get(name, ""))
            continue
        if now["class"] != current_class(was["class"]) and not accepts_class(name, before, after):
            yield name, _other_class(name, before, after) + upgrade_for(name, before, after)
        elif changed := changed_accumulators(name, was, now):
            yield name, changed
        gone = sorted(set(was["keys"]) - set(now["keys"]))
        new = sorted(set(now["keys"]) - set(was["keys"]))
        # A key without a name is named after its line: a line above it is no other key.
        gone = list(_unlike(gone, new))
        if gone:
            yield name, _other_key(name, gone, now["keys"])


def _other_key(name: str, was: Sequence[str], now: Sequence[str]) -> str:
    same = ""
    if len(was) == len(now) == 1 and COLLECTED not in (*was, *now):
        same = (
            f"If the keys are the same, give the extractor its former name: "
            f"@wallaroo.key_extractor({was[0]!r}). "
        )
    return (
        f"The state of step '{name}' was kept by {', '.join(was)}, now it is kept by "
        f"{', '.join(now)}. {same}If {'not' if same else 'that is meant'}, {ANOTHER_NAME}."
    )


def _gone(name: str, kind: str) -> str:
    step = name.removeprefix(ORDER)
    if step != name:
        return (
            f"State step '{step}' is gone or renamed, and events that wait in order of time for it "
            f"would be lost. If it was renamed, rename where they wait, too: `wallaroo state "
            f"rename CHECKPOINT {shlex.quote(name)} {shlex.quote(f'{ORDER}NEW')}`."
        )
    rename = (
        f"If it was renamed, rename its state, too: `wallaroo state rename CHECKPOINT "
        f"{shlex.quote(name)} NEW`."
    )
    if kind == Dedupe.kind:
        return (
            f"Step '{name}' is gone or renamed: it would forget which events it has passed on. "
            f"{rename} If it was removed, --allow-incompatible drops only that."
        )
    if kind in _WAITING or "join" in kind.split():
        return (
            f"Step '{name}' is gone or renamed: events that wait in it would be lost. {rename} If "
            f"it was removed, run the former version until its input has ended, or time has passed "
            f"what waits, and drop the rest with --allow-incompatible. `wallaroo state export "
            f"--step {shlex.quote(name)} --checkpoint CHECKPOINT` prints it."
        )
    return f"State step '{name}' is gone or renamed: its state would be lost. {rename}"


def _other_class(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    notes = before["states"][name], after["states"][name]
    if in_words(notes[0]["class"]) == notes[0]["class"]:
        was, now = (
            "a numpy dtype" if name in plan.get("layouts", {}) else f"class {note['class']}"
            for plan, note in zip((before, after), notes, strict=True)
        )
        return f"The state of step '{name}' is of {was}, now it is of {now}."
    was, now = (
        in_words(note["class"], note.get("aggregation", note.get("accumulators"))) for note in notes
    )
    return (
        f"The state of step '{name}' is that of {was}, now it is {now}. Give the windows "
        f"another name, and drop the former ones with --allow-incompatible: the new ones begin "
        f"empty."
    )


def _unlike(names: Sequence[str], others: Sequence[str]) -> Iterator[str]:
    """Yield the names, without steps named after their line that only moved.

    >>> list(_unlike(["filter at a.py:3", "filter at a.py:9", "clean"], ["filter at a.py:4"]))
    ['filter at a.py:9', 'clean']
    """
    moved = Counter(_LINE.sub("", name) for name in others if _LINE.search(name))
    for name in names:
        bare = _LINE.sub("", name)
        if moved[bare] and bare != name:
            moved[bare] -= 1
        else:
            yield name


def _changes(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for part, noun in (("sources", "Source"), ("sinks", "Sink"), ("steps", "Step")):
        new = [name for name in after[part] if name not in before[part]]
        gone = [name for name in before[part] if name not in after[part]]
        yield from (f"{noun} '{name}' is new." for name in _unlike(new, gone))
        for name in _unlike(gone, new):
            yield f"{noun} '{name}' is gone; {_what_left(noun, before[part][name], before)}."
    yield from _changed_reads(before, after)
    yield from _moved_sinks(before, after)
    yield from changed_joins(before.get("joins", {}), after.get("joins", {}))
    yield from changed_aggregations(before["states"], after["states"])
    yield from timing.changed_timing(before, after)
    yield from changed_attributes(before, after)
    yield from timing.changed_layouts(before.get("layouts", {}), after.get("layouts", {}))
    for name, kind in after["steps"].items():
        if before["steps"].get(name, kind) != kind:
            yield f"Step '{name}' was a {before['steps'][name]} and is a {kind} now."
    was = before.get("on_error", {})
    now = after.get("on_error", {})
    # A step that is new, gone or on another line has no policy to compare with.
    for name in sorted({*was, *now} & before["steps"].keys() & after["steps"].keys()):
        if was.get(name, STOP) != now.get(name, STOP):
            yield (
                f"Step '{name}' had on_error={was.get(name, STOP)!r} and has "
                f"{now.get(name, STOP)!r} now."
            )


def _changed_reads(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for name, now in after["sources"].items():
        was = before["sources"].get(name, {}).get("reads", [])
        reads = now.get("reads", [])
        for what in was:
            if what not in reads:
                yield (
                    f"Source '{name}' no longer reads {what}: where it was is kept, and it resumes "
                    f"there if it is put back."
                )
        for what in reads:
            if was and what not in was:
                yield (
                    f"Source '{name}' reads {what} now: from where this checkpoint left it, or "
                    f"else from its beginning."
                )


def _what_left(noun: str, was: Any, before: dict[str, Any]) -> str:
    """Return the fate of a source's, sink's or step's stored data."""
    if noun == "Sink":
        return "nothing waits for it"
    if noun == "Step" and was == "event_time" and before["states"]:
        return (
            "windows, timers, joins and expiry in the checkpoint were kept by its times, and "
            "events have others now"
        )
    return "it kept nothing"


def _moved_sinks(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for name, was in before["sinks"].items():
        now = after["sinks"].get(name, {})
        notes = [key for key in ("target", "address") if key in was and key in now]
        if any(was[key] != now[key] for key in notes):
            yield (
                f"Sink '{name}' wrote to {sink_ids.place_of(was)} and writes to "
                f"{sink_ids.place_of(now)} now: what has left stays where it is; waiting and "
                f"new output goes to the new place."
            )
        if "writes" in was and was["writes"] != now.get("writes", was["writes"]):
            yield (
                f"Sink '{name}' wrote {was['writes']} and writes {now['writes']} now: if these "
                f"follow in the same file, it can be read in neither form."
            )
