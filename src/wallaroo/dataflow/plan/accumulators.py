"""Notes of a plan.json about windows: the form of their accumulators, and their bounds in words.

Accumulators of combined aggregations are stored by position: only the same parts in the same order
can read them.

Where it runs: driver and a terminal; pure.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from wallaroo.steps.times import shown_span
from wallaroo.steps.windows.aggregation import COMBINED, Filtered
from wallaroo.user_code.references import importable_module

_OURS = "wallaroo.aggregations."  # left out for people
_WINDOWS = {
    "RangeWindowSpec": "range windows",
    "CountWindowSpec": "count windows",
    "SessionWindowSpec": "session windows",
}
_SPEC = re.compile(r"^(\w+)\((.*)\)$")
_PARAMETERS = re.compile(r"\((?:ties|n)=\w+\)")
_DEFAULTS = {"0", "None", "'drop'"}


def noted_accumulators(step: Any) -> str | None:
    """Return the note of the aggregation in windows or a join; None if there is none.

    That of windows is noted only if it has parts or parameters: else its class, which is noted,
    says it all.
    """
    over = getattr(getattr(step, "spec", None), "over", None)
    if over is not None:
        return _form_of(over.aggregation)
    aggregation = getattr(step, "aggregation", None)
    has_more = _parts_of(aggregation) or _parameters_of(aggregation)
    return _form_of(aggregation) if has_more else None


def _form_of(aggregation: Any) -> str:
    cls = aggregation if inspect.isclass(aggregation) else type(aggregation)
    parts = _parts_of(aggregation)
    if not parts:
        return (
            f"{importable_module(cls.__module__)}.{cls.__qualname__}{_parameters_of(aggregation)}"
        )
    if isinstance(aggregation, Filtered):
        return f"{_form_of(aggregation.whole)}.where(...)"
    inner = ", ".join(f"{name}={_form_of(part)}" for name, part in parts.items())
    return f"combine_of({inner})"


def _parameters_of(aggregation: Any) -> str:
    """Return the parameters that decide what an accumulator keeps, as they are written."""
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
    """Return a sentence about a step whose stored accumulators are of another form, or "".

    ``was`` and ``now`` are the notes of its state.  Earlier versions noted no form, or no
    parameters: then nothing is known of them.
    """
    before = was.get("accumulators")
    after = now.get("accumulators")
    if before is None or before in (after, _PARAMETERS.sub("", after or "")):
        return ""
    return (
        f"Step '{name}' aggregated with {_short(before)}, now it does with "
        f"{_short(after or 'another aggregation')}: the accumulators in the checkpoint have the "
        f"former's parts, in their order. Keep the parts' names, order, classes and parameters, or "
        f"give the step another name, and drop what is stored with --allow-incompatible: the new "
        f"one begins empty."
    )


def _short(form: str) -> str:
    return form.replace(_OURS, "")


def in_words(kept: str) -> str:
    """Return the note of a state's class for people, with windows by their spans.

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
    return f"{_short(cls)} over {_WINDOWS[match[1]]} ({', '.join(shown)})"


def _value(name: str, value: str) -> str:
    return shown_span(int(value)) if name.endswith("_ns") and value.isdigit() else value.strip("'")
