"""Ids of an application's sinks, and their place in a checkpoint.

The invariants:

* A sink is identified by its ``name=``, else by its kind and target (with the address if a target
  exists at several), never by its place in the application.
* A sink keeps the id under which a checkpoint has its output (folder of the outbox, commits,
  records in the other system), even if it is named or renamed. If the form of its output changes as
  well, it is another sink.
* An id is never reassigned: those of removed sinks stay noted.
* Sinks of one kind and target reach the same receiver and are numbered in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import blake2b
from typing import Any, TypeVar

from wallaroo.dataflow.plan.model import DEAD_LETTERS, Plan, SinkPlan

TEXT_MAX = 48  # a name or target in an id, which names folders and labels metrics
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")

Noted = Mapping[str, dict[str, str]]  # id -> a sink's notes in a plan.json


@dataclass(frozen=True, slots=True)
class ReconciledSinks:
    """A plan with a checkpoint's sink ids, missing sinks, and notes."""

    plan: Plan
    gone: Noted
    unclear: tuple[str, ...] = ()


def noted(config: Any) -> dict[str, str]:
    """Return a checkpoint's notes of a sink."""
    notes = {"kind": config.kind, "target": config.target, "address": config.address}
    if name := name_of(config):
        notes["name"] = name
    columns = getattr(config, "columns", None)
    if isinstance(columns, Mapping):
        notes["columns"] = ", ".join(f"{column} {kind}" for column, kind in columns.items())
    elif columns:
        notes["columns"] = ", ".join(columns)
    if form := getattr(config, "staged_form", ""):
        notes["form"] = form
    if written := getattr(config, "written_form", ""):
        notes["writes"] = written
    if bound_by := getattr(config, "bound_by", ""):
        notes["bound_by"] = bound_by
    return notes


def has_other_form(was: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Return whether a sink would misread staged output.

    Earlier versions noted columns alone.
    """
    has_other_columns = was.get("columns", "") != now.get("columns", "")
    return has_other_columns or ("form" in was and was["form"] != now.get("form", ""))


def form_of(sink: Mapping[str, str]) -> str:
    """Return the form of a noted sink's output, for people."""
    columns = sink.get("columns", "")
    words = (f"the columns {columns}" if columns else "", sink.get("form", ""))
    return " ".join(filter(None, words)) or "outputs as they are"


def name_of(config: Any) -> str:
    """Return the user's name for a sink; empty if there is none."""
    name = getattr(config, "name", "")
    return name if isinstance(name, str) else ""


def place_of(sink: Mapping[str, str]) -> str:
    """Return the place that a noted sink writes to, for people; nothing if unknown."""
    where = sink.get("target", "")
    address = sink.get("address", "")
    return f"{where} at {address}" if address else where


def fresh_ids(configs: Sequence[Any], used: Collection[str] = ()) -> list[str]:
    """Return ids of sinks that are new: name or kind, with the target if not unique."""
    unnamed = [config.kind for config in configs if not name_of(config)]
    in_use = {DEAD_LETTERS, *used}
    ids: dict[int, str] = {}
    for number, config in sorted(enumerate(configs), key=lambda each: not name_of(each[1])):
        if name := name_of(config):
            wanted = _safe(name)
        elif unnamed.count(config.kind) > 1 and config.target:
            wanted = f"{config.kind}-{_safe(config.target)}"
        else:
            wanted = config.kind
        ids[number] = next(each for each in _numbered(wanted) if each not in in_use)
        in_use.add(ids[number])
    return [ids[number] for number in range(len(configs))]


def _numbered(wanted: str) -> Iterator[str]:
    yield wanted
    number = 2
    while True:
        yield f"{wanted}-{number}"
        number += 1


def _safe(text: str) -> str:
    """Return a folder name for a text, made unique by a checksum.

    >>> _safe("127.0.0.1:7002"), _safe("orders")
    ('127.0.0.1-7002', 'orders')
    >>> _safe("a/b") == _safe("a b"), _safe("a/" * 60) == _safe("b/" * 60)
    (False, False)
    """
    safe = _UNSAFE.sub("-", text).strip("-.")
    if safe == text.replace(":", "-") and len(safe) <= TEXT_MAX:
        return safe
    digest = blake2b(text.encode(), digest_size=3).hexdigest()
    return f"{safe[-TEXT_MAX:].strip('-.')}-{digest}".lstrip("-")


def reconcile(
    plan: Plan, before: Mapping[str, Any], shape: Sequence[Any], has_commits: bool = True
) -> ReconciledSinks:
    """Assign a plan's sinks the ids that a checkpoint has for them.

    ``before`` is its plan.json, ``shape`` that of this plan's stages in a plan.json.  Without
    commits no id has any output.
    """
    sinks = [sink for sink in plan.sinks if sink.name != DEAD_LETTERS]
    new = [noted(sink.config) for sink in sinks]
    stored: Noted = {each: sink for each, sink in before["sinks"].items() if each != DEAD_LETTERS}
    lost: Noted = before.get("gone", {})
    ids, unclear = _matched(new, stored, before["shape"] == shape)
    back = [number for number in range(len(new)) if number not in ids]
    found, _ = _matched([new[number] for number in back], lost, False, PASSES[:2])
    ids.update((back[number], each) for number, each in found.items())
    used = {*stored, *lost} if has_commits else {*ids.values()}
    fresh = fresh_ids([sink.config for sink in sinks], used)
    names = {id(sink): ids.get(number, fresh[number]) for number, sink in enumerate(sinks)}
    kept = {*names.values()}
    return ReconciledSinks(
        replace(plan, sinks=tuple(_named(sink, names.get(id(sink))) for sink in plan.sinks)),
        {each: sink for each, sink in {**lost, **stored}.items() if each in used - kept},
        tuple(unclear),
    )


def _named(sink: SinkPlan, name: str | None) -> SinkPlan:
    return sink if name is None else replace(sink, name=name)


class _Rule(Enum):
    ANY = "those of one key are interchangeable"
    ONE = "there must be one only on both sides"
    PLACE = "if the application was not changed, they are in their order"


_Key = Callable[[dict[str, str], str], Any]  # from a noted sink and its id; None: not to be matched


def _without_address(sink: dict[str, str], own_id: str) -> Any:
    return None if own_id and "address" in sink else sink.get("target", "")


# earlier versions noted no addresses, and for some kinds no target: the last two are for these
PASSES: tuple[tuple[_Key, _Rule], ...] = (
    (lambda sink, own_id: sink.get("name"), _Rule.ANY),
    (lambda sink, own_id: (sink.get("target", ""), sink.get("address", "")), _Rule.ANY),
    # only a sink of a checkpoint has an id
    (lambda sink, own_id: own_id or sink.get("name"), _Rule.ANY),
    (lambda sink, own_id: sink.get("target", ""), _Rule.ONE),
    (_without_address, _Rule.PLACE),
    (lambda sink, own_id: None if own_id and "target" in sink else "", _Rule.PLACE),
)


def _matched(
    new: Sequence[dict[str, str]],
    old: Noted,
    has_same_shape: bool,
    passes: Sequence[tuple[_Key, _Rule]] = PASSES,
) -> tuple[dict[int, str], list[str]]:
    """Return the ids of known sinks by number of the sink, and sentences about the unclear ones."""
    ids: dict[int, str] = {}
    unclear: list[str] = []
    for key, rule in passes:
        taken = {*ids.values()}
        numbers = _grouped((n, key(sink, ""), sink) for n, sink in enumerate(new) if n not in ids)
        # from 10 on, ids are longer
        in_order = sorted(old, key=lambda each: (len(each), each))
        known = _grouped((i, key(old[i], i), old[i]) for i in in_order if i not in taken)
        for group, there in known.items():
            here = numbers.get(group, [])
            is_even = len(here) == len(there)
            is_clear = is_even and (len(here) == 1 or (rule is _Rule.PLACE and has_same_shape))
            if rule is _Rule.ANY or is_clear:
                pairs = zip(here, there, strict=False)
                ids.update((n, i) for n, i in pairs if not _is_another(new[n], old[i], i))
            elif rule is _Rule.PLACE and here:
                unclear.append(_unclear(group[0], there))
    return ids, unclear


def _is_another(new: dict[str, str], old: dict[str, str], own_id: str) -> bool:
    """Return whether a sink at a noted one's place has both another name and another form."""
    name = new.get("name", own_id)
    return name not in (own_id, old.get("name")) and has_other_form(old, new)


_Which = TypeVar("_Which", int, str)


def _grouped(
    sinks: Iterable[tuple[_Which, Any, dict[str, str]]],
) -> dict[tuple[str, Any], list[_Which]]:
    groups: dict[tuple[str, Any], list[_Which]] = {}
    for which, key, sink in sinks:
        if key is not None:
            groups.setdefault((sink["kind"], key), []).append(which)
    return groups


def _unclear(kind: str, ids: Sequence[str]) -> str:
    listed = ", ".join(f"'{each}'" for each in ids)
    return (
        f"An earlier version noted no addresses, so which {kind} sink is which of {listed} is "
        f"unclear. Run the application once as it was, with this version, and change it then."
    )
