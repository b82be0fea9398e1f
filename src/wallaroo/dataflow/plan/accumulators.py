"""Notes on windows in a plan.json: their aggregations and bounds.

Accumulators of combined aggregations are stored by position: they can be read only by the same
parts in the same order. With another column or argument they are read and continue with different
values: that is reported, as is a renamed function; function code is not compared.

Where it runs: driver and a terminal; pure.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import inspect
import re
import uuid
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

from wallaroo.steps.times import shown_span
from wallaroo.steps.windows.aggregation import COMBINED, Filtered
from wallaroo.user_code.references import importable_module
from wallaroo.user_code.stored_fields import fields_of

ANOTHER_NAME = (
    "give the step another name, and drop what is stored with --allow-incompatible: the new one "
    "begins empty"
)
_OURS = "wallaroo.aggregations."  # left out for people
_WINDOWS = {
    "RangeWindowSpec": "range windows",
    "CountWindowSpec": "count windows",
    "SessionWindowSpec": "session windows",
}
_SPEC = re.compile(r"^(\w+)\((.*)\)$")
_PARAMETERS = re.compile(r"\((?:ties|n)=\w+\)")
_DEFAULTS = {"0", "None", "'drop'"}
_DATES = (datetime.date, datetime.time, datetime.timedelta)
_PLAIN = (
    int,
    float,
    str,
    bytes,
    *_DATES,
    decimal.Decimal,
    fractions.Fraction,
    uuid.UUID,
    enum.Enum,
)
_WRITTEN_MAX = 60  # characters of one value
_NOTHING = "None"


def noted_accumulators(step: Any) -> str | None:
    """Return the note of the aggregation in windows or a join; None if there is none.

    That of windows is noted only if it has parts or parameters: otherwise its noted class suffices.
    """
    aggregation = _aggregation_of(step)
    is_noted = getattr(step, "aggregation", None) is None
    has_more = is_noted or _parts_of(aggregation) or _parameters_of(aggregation)
    return _form_of(aggregation) if aggregation is not None and has_more else None


def noted_aggregation(step: Any) -> str | None:
    """Return a step's aggregation with all its arguments; None if there is none."""
    aggregation = _aggregation_of(step)
    return None if aggregation is None else _form_of(aggregation, is_whole=True)


def _aggregation_of(step: Any) -> Any:
    over = getattr(getattr(step, "spec", None), "over", None)
    return getattr(step, "aggregation", None) if over is None else over.aggregation


def _form_of(aggregation: Any, *, is_whole: bool = False) -> str:
    """Return an aggregation's source form, with all arguments or those that affect storage."""
    cls = aggregation if inspect.isclass(aggregation) else type(aggregation)
    parts = _parts_of(aggregation)
    if not parts:
        arguments = _arguments_of(aggregation) if is_whole else _parameters_of(aggregation)
        return f"{importable_module(cls.__module__)}.{cls.__qualname__}{arguments}"
    if isinstance(aggregation, Filtered):
        predicate = _written(aggregation.predicate) if is_whole else "..."
        return f"{_form_of(aggregation.whole, is_whole=is_whole)}.where({predicate})"
    inner = (f"{name}={_form_of(part, is_whole=is_whole)}" for name, part in parts.items())
    return f"combine_of({', '.join(inner)})"


def _arguments_of(aggregation: Any) -> str:
    """Return an aggregation's constructor arguments, from its attributes."""
    written = ((name, _written(value)) for name, value in fields_of(aggregation).items())
    return f"({', '.join(f'{name}={value}' for name, value in written if value != _NOTHING)})"


def _written(value: Any) -> str:
    """Return the source form of data and the names of functions; else ``_NOTHING``.

    >>> _written(["bid", 2.5, len]), _written({1: None}), _written(object())
    ("['bid', 2.5, len]", '{1: None}', 'None')
    """
    match value:
        case list() | tuple():
            text = f"[{', '.join(map(_written, value))}]"
        case set() | frozenset():
            text = f"{{{', '.join(sorted(map(_written, value)))}}}"
        case dict():
            pairs = (f"{_written(key)}: {_written(item)}" for key, item in value.items())
            text = f"{{{', '.join(pairs)}}}"
        case _ if isinstance(value, _PLAIN):
            text = repr(value)
        case _ if hasattr(value, "initial_accumulator") and not inspect.isclass(value):
            return _form_of(value, is_whole=True)
        case _:
            return _name_of(value)
    digest = blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return text if len(text) <= _WRITTEN_MAX else f"{text[:_WRITTEN_MAX]}... ({digest})"


def _name_of(function: Any) -> str:
    """Return a function's name; ``_NOTHING`` if it is none, or one of this package's own."""
    is_own = str(getattr(function, "__module__", "")).startswith("wallaroo.")
    return _NOTHING if is_own else str(getattr(function, "__name__", _NOTHING))


def _parameters_of(aggregation: Any) -> str:
    """Return the source form of the parameters that determine an accumulator's content."""
    names = getattr(aggregation, "_kept_by", ())
    written = ", ".join(f"{name}={getattr(aggregation, name)!r}" for name in names)
    return f"({written})" if written else ""


def _parts_of(aggregation: Any) -> dict[str, Any]:
    if isinstance(aggregation, Filtered):
        return {"whole": aggregation.whole}
    if getattr(type(aggregation), "_fold", None) == COMBINED:
        parts: dict[str, Any] = aggregation.parts
        return parts
    return {}


def changed_accumulators(name: str, was: Any, now: Any) -> str:
    """Return a sentence about a step whose stored accumulators have another form, or "".

    ``was`` and ``now`` are the notes of its state.  Earlier versions noted no form, or no
    parameters: then they are unknown.
    """
    before = was.get("accumulators")
    after = now.get("accumulators")
    if before is None or before in (after, _PARAMETERS.sub("", after or "")):
        return ""
    return (
        f"Step '{name}' aggregated with {_short(before)}, now it does with "
        f"{_short(after or 'another aggregation')}: the accumulators in the checkpoint have the "
        f"former's parts, in their order. Keep the parts' names, order, classes and parameters, or "
        f"{ANOTHER_NAME}."
    )


def changed_aggregations(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each step whose aggregation has other arguments.

    ``before`` and ``after`` are the notes of all states.  Earlier versions noted no arguments.
    """
    for name in sorted(before.keys() & after.keys()):
        was = before[name].get("aggregation")
        now = after[name].get("aggregation", was)
        if was not in (None, now):
            yield (
                f"Step '{name}' aggregated with {_short(was)}, now it does with {_short(now)}: "
                f"windows that are open have values of the former, and get those of the latter. To "
                f"keep them apart, {ANOTHER_NAME}."
            )


def _short(form: str) -> str:
    return form.replace(_OURS, "")


def in_words(kept: str, aggregation: str | None = None) -> str:
    """Return the note of a state's class for people, with windows by their spans.

    ``aggregation``: its note, if there is one.

    >>> in_words("app.Total over RangeWindowSpec(range_ns=60000000000, slide_ns=0, policy='drop')")
    'app.Total over range windows (range 60 s)'
    >>> in_words("app.Total"), in_words("app.Total over CountWindowSpec(count=3)")
    ('app.Total', 'app.Total over count windows (count 3)')
    """
    cls, _, spec = kept.partition(" over ")
    match = _SPEC.match(spec)
    if match is None or match[1] not in _WINDOWS:
        return kept
    fields = (field.partition("=") for field in match[2].split(", "))
    shown = [
        f"{name.removesuffix('_ns').replace('_', ' ')} {_value(name, value)}"
        for name, _, value in fields
        if value not in _DEFAULTS
    ]
    return f"{_short(aggregation or cls)} over {_WINDOWS[match[1]]} ({', '.join(shown)})"


def _value(name: str, value: str) -> str:
    return shown_span(int(value)) if name.endswith("_ns") and value.isdigit() else value.strip("'")
