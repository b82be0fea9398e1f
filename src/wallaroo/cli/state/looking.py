"""The read-only verbs of ``wallaroo state``: list, get, export and diff.

No JVM is started, nothing is locked; without ``--app`` none of the application's code is imported.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import heapq
import json
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from wallaroo.api.serialization import hooks_of
from wallaroo.checkpoints.inspection.keyed import StoredEntry
from wallaroo.checkpoints.inspection.reader import (
    Change,
    CheckpointReader,
    StateAt,
    changes,
    ranges_text,
)
from wallaroo.checkpoints.inspection.step_forms import Loads, StepForms
from wallaroo.checkpoints.inspection.values import DecodedValue, load_safely, text_of
from wallaroo.cli.application.loading import import_application
from wallaroo.cli.terminal.formatting import print_table, utc_text
from wallaroo.engine.blocks.keys import Key, decode_key, encode_key, normalize_key
from wallaroo.engine.stores.last_use import without_last_use
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.processes.open_files import allow_many_files
from wallaroo.state.log.commits import Commit


def candidates(text: str, key_type: str | None) -> list[Key]:
    """Return the possible keys for a text, the most likely first.

    >>> candidates("7", None), candidates("b'a'", "bytes"), candidates("('a', 7)", "tuple")
    (['7', b'7', 7], [b'a'], [('a', 7)])
    """
    keys: list[Key] = [text, text.encode("utf-8", "surrogateescape")]
    with contextlib.suppress(ValueError):
        keys.append(int(text))
    if text[:1] in ("'", '"') or text[:2] in ("b'", 'b"') or text[:1] == "(":
        with contextlib.suppress(ValueError, SyntaxError, TypeError):
            written = normalize_key(ast.literal_eval(text))
            keys.insert(0, written)
            if key_type:  # quotes and a type: certainly a literal
                keys = [key for key in keys if type(key) is not type(written) or key == written]
    return [key for key in keys if key_type in (None, type(key).__name__)]


PACKED_NOTE = (
    "packed by the application itself: shown as bytes in hex; --app APP.py reads it "
    "with its deserialize"
)
Show = Callable[[StoredEntry], DecodedValue]


# -- list


def list_command(options: argparse.Namespace) -> None:
    """Print commits, keys or steps."""
    reader = _open(options)
    if options.commits:
        _print_commits(reader, options.limit)
        return
    state = _state_at(reader, options.commit, options.step)
    print(f"commit {state.commit.batch}, {utc_text(state.commit.time_ms)}")
    if options.step is None:
        sizes = state.sizes().items()
        print_table(
            ("step", "keys", "bytes"),
            [(step, f"{size.keys:,}", f"{size.bytes:,}") for step, size in sizes],
        )
    else:
        _print_keys(state, options)


def _print_commits(reader: CheckpointReader, limit: int) -> None:
    commits = reader.commits()
    rows = []
    before = reader.before(commits[0].batch) if commits else None
    for commit in commits:
        deltas = commit.deltas
        rows.append(
            (
                str(commit.batch),
                utc_text(commit.time_ms),
                _events(commit, before),
                ", ".join(f"{name} {count:,}" for name, count in commit.outputs.items()),
                f"{sum(delta.entries for delta in deltas):,}",
                f"{sum(delta.size for delta in deltas):,}",
            )
        )
        before = commit
    print_table(("commit", "time", "events", "outputs", "entries", "delta bytes"), rows[-limit:])
    if len(rows) > limit:
        numbers = ranges_text([commit.batch for commit in commits])
        print(
            f"the newest {limit} of {len(rows)} retained commits ({numbers}); --limit N shows more"
        )


def _events(commit: Commit, before: Commit | None) -> str:
    """Return this batch's events by source (totals if its predecessor was removed), or its edit."""
    if commit.edit:
        return f"({commit.edit})"
    known = before.offsets if before else {}
    so_far = " so far" if before is None and commit.batch > 0 else ""
    return ", ".join(
        f"{name} {events - known.get(name, [0, 0])[1]:,}{so_far}"
        for name, (_, events) in commit.offsets.items()
    )


def _print_keys(state: StateAt, options: argparse.Namespace) -> None:
    prefix = options.prefix.encode()
    count = 0

    def matching() -> Iterator[tuple[bytes, int]]:
        nonlocal count
        for entry in state.entries(options.step):
            encoded = encode_key(entry.key)
            first = encode_key(entry.key[0]) if isinstance(entry.key, tuple) else encoded
            if first[1:].startswith(prefix):
                count += 1
                yield encoded, entry.size

    found = heapq.nsmallest(options.limit, matching())
    print_table(
        ("key", "bytes"), [(repr(decode_key(encoded)), f"{size:,}") for encoded, size in found]
    )
    begin = f" that begin with '{options.prefix}'" if prefix else ""
    more = (
        ""
        if count <= options.limit
        else f"; the first {options.limit} are shown, --limit N shows more"
    )
    print(f"{count:,} keys{begin} in step '{options.step}'{more}")


# -- get


def get_command(options: argparse.Namespace) -> None:
    """Print the state of one key, in every step that has it or in the named one."""
    state = _state_at(_open(options), options.commit, options.step)
    keys = candidates(options.key, options.key_type)
    entries = state.find(keys, options.step)
    if not entries:
        tried = (
            ", ".join(f"{type(key).__name__} {key!r}" for key in keys)
            or f"no {options.key_type} can be read from it"
        )
        where = f"step '{options.step}'" if options.step else "no step"
        have = "has no" if options.step else "has"
        raise CheckpointError(
            f"{where} {have} key {options.key!r} at commit {state.commit.batch} (tried: {tried}). "
            f"`wallaroo state list --step NAME --prefix P` shows the keys there are."
        )
    showing = _showing(options.app, state.forms)
    for entry in entries:
        _print_entry(entry, showing(entry), state.commit)


def _print_entry(entry: StoredEntry, shown: DecodedValue, commit: Commit) -> None:
    key_type = type(entry.key).__name__
    size = f"{entry.size:,}"
    print(
        f"step '{entry.step}', key {entry.key!r} ({key_type}), commit {commit.batch}, {size} bytes"
    )
    if shown.is_packed:
        print(f"  {entry.raw.hex()}\n  ({PACKED_NOTE})")
        return
    if shown.is_keyed:
        _print_keyed(shown)
        return
    is_object = isinstance(shown.value, dict) and "." in shown.class_name
    rows = shown.value.get("__dict__", shown.value) if is_object else {"value": shown.value}
    print(f"  {shown.class_name}")
    width = max(map(len, rows), default=0)
    for name, value in rows.items():
        print(f"    {name.ljust(width)}  {text_of(value)}")


def _print_keyed(shown: DecodedValue) -> None:
    """Print a key's windows, timers or sides of a join, one per line, by kind."""
    for name, items in shown.value.items():
        if not isinstance(items, list):
            print(f"  {name}: {text_of(items)}")
            continue
        print(f"  {name}")
        for item in items:
            fields = (f"{field} {_word(value)}" for field, value in item.items())
            print(f"    {', '.join(fields)}")


def _word(value: Any) -> str:
    return value if isinstance(value, str) else text_of(value)


# -- export


def export_command(options: argparse.Namespace) -> None:
    """Write every entry as one line of JSON; one key group is in memory at a time."""
    state = _state_at(_open(options), options.commit, options.step)
    showing = _showing(options.app, state.forms)
    with _output(options.out) as out:
        for entry in state.entries(options.step):
            shown = showing(entry)
            out.write(
                json.dumps(
                    {
                        **_key_form(entry.step, entry.key),
                        "class": shown.class_name,
                        "value": shown.value,
                    }
                )
                + "\n"
            )


def _key_form(step: str, key: Key) -> dict[str, Any]:
    parts = key if isinstance(key, tuple) else (key,)
    forms = [{"$bytes": part.hex()} if isinstance(part, bytes) else part for part in parts]
    form = forms if isinstance(key, tuple) else forms[0]
    return {"step": step, "key": form, "key_type": type(key).__name__}


@contextlib.contextmanager
def _output(file: Path | None) -> Iterator[TextIO]:
    if file is None:
        yield sys.stdout
        return
    try:
        with open(file, "w", encoding="utf-8") as out:
            yield out
    except OSError as error:
        raise PeerError(
            f"{file} cannot be written: {error.strerror}. Choose another file with --out."
        ) from error


# -- diff


def diff_command(options: argparse.Namespace) -> None:
    """Print the changes between two commits, then their number by step."""
    reader = _open(options)
    new = _state_at(reader, options.to, options.step)
    old = _state_at(reader, options.start, None)
    showing = _showing(options.app, new.forms)
    counts = Counter[tuple[str, str]]()
    print(f"from commit {old.commit.batch} to commit {new.commit.batch}")
    for change in changes(old, new, options.step):
        sign, text = _describe(change, showing)
        if not text:  # rows of other keys in one piece have changed
            continue
        counts[change.step, sign] += 1
        print(f"{sign} '{change.step}' {change.key!r}  {text}")
    steps = dict.fromkeys((*old.steps, *new.steps))
    rows = [
        (step, *(f"{counts[step, sign]:,}" for sign in "+~-"))
        for step in steps
        if options.step in (None, step)
    ]
    print_table(("step", "added", "changed", "removed"), rows)


def _describe(change: Change, showing: Show) -> tuple[str, str]:
    def side(entry: StoredEntry) -> str:
        return text_of(showing(entry).value)

    if change.old is None:
        return "+", side(change.new) if change.new is not None else ""
    if change.new is None:
        return "-", side(change.old)
    before = side(change.old)
    after = side(change.new)
    is_same = before == after and bool(change.new.parts)
    return "~", "" if is_same else f"{before} -> {after}"


# -- shared


def _open(options: argparse.Namespace) -> CheckpointReader:
    allow_many_files()
    return CheckpointReader(options.checkpoint)


def _state_at(reader: CheckpointReader, batch: int | None, step: str | None) -> StateAt:
    state = reader.at(batch)
    state.check_step(step)
    return state


def _showing(app: str | None, forms: StepForms) -> Show:
    """Return a function that decodes entries, with stand-ins or with ``app``'s classes."""
    if app is None:
        return forms.show
    unpack = loads_of(app)

    def showing(entry: StoredEntry) -> DecodedValue:
        try:
            return forms.show(entry, unpack)
        except Exception as error:
            raise CheckpointError(
                f"state of key {entry.key!r} in step '{entry.step}' cannot be read with {app}: "
                f"{type(error).__name__}: {error}. Give the application that wrote it, or leave "
                "out --app to see it as it is stored."
            ) from error

    return showing


def loads_of(app: str | None) -> Loads:
    """Return a function that unpacks stored objects, to stand-ins or with ``app``'s own classes."""
    if app is None:
        return load_safely
    hooks = hooks_of(vars(import_application(app)))
    loads = hooks[1] if hooks else pickle.loads
    return lambda raw: loads(without_last_use(raw) if hooks else raw)
