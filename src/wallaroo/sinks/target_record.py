"""Outbox records of a sink's target and last output, without secrets.

Where it runs: driver.

``target.json`` is written when a run begins to write to a target, and states since which commit; it
is on disk, in durable mode, before anything is written there.  If a checkpoint has output and its
outbox lacks this file, the output was sent through another outbox: it is refused.  ``left.json`` is
written whenever output was sent, and not synced: after a power cut it may be out of date, never too
new.  It names the ledger that the system keeps together with the output, if it keeps one: a ledger
that lacks the commit is an older copy, and so is the output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from wallaroo.durable.commit_id import CommitHistory, CommitId
from wallaroo.durable.whole_file import write_whole
from wallaroo.errors import CheckpointError
from wallaroo.network.urls import place_and_query
from wallaroo.sinks.staging import WAYS_ON

FORMAT = 1
TARGET = "target.json"
LEFT = "left.json"


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """The target of output.

    ``since`` is the last commit before output began to go there.
    """

    target: str
    since: CommitId
    before: str = ""  # the target until then


def read_target(
    staging: Path, history: CommitHistory, tokens: Sequence[Any]
) -> TargetRecord | None:
    """Return the outbox's record; None if this sink has had no output yet.

    ``tokens`` are those of the last commit.  Raises CheckpointError if the record is damaged, of
    another checkpoint, or missing although there was output.
    """
    path = staging / TARGET
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        record = TargetRecord(fields["target"], CommitId.from_json(fields), fields["before"])
        if fields["format"] != FORMAT or record.since.checkpoint != history.checkpoint:
            raise ValueError("it belongs to another checkpoint or version of wallaroo")
    except FileNotFoundError:
        if any(token is not None for token in tokens):
            raise CheckpointError(
                f"{path} is missing, although the checkpoint's last commit has output for this "
                f"sink: its outbox was removed, or the checkpoint was made by an earlier version "
                f"of wallaroo. {WAYS_ON}"
            ) from None
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be used: {error}. {WAYS_ON}") from error
    return record


def begin_target(
    staging: Path, known: TargetRecord | None, target: str, last: CommitId, is_durable: bool
) -> None:
    """Record that output after commit ``last`` goes to ``target``, if that is not recorded yet."""
    if known is not None and known.target == target:
        return
    fields = {
        "format": FORMAT,
        "target": target,
        "before": known.target if known is not None else "",
        **last.to_json(),
    }
    content = json.dumps(fields).encode()
    write_whole(staging / TARGET, content, is_durable=is_durable, points="outbox.target")


def note_left(staging: Path, commit: CommitId, writer: str, ledger: str = "") -> None:
    """Record that all output up to ``commit`` was sent; ``writer`` is the run's epoch."""
    content = json.dumps({**commit.to_json(), "ledger": ledger}).encode()
    write_whole(staging / LEFT, content, is_durable=False, points="outbox.left", writer=writer)


def last_left(staging: Path) -> CommitId | None:
    """Return the last noted commit, if known."""
    return _noted(staging)[0]


def last_entered(staging: Path, ledger: str) -> CommitId | None:
    """Return the last noted commit if it was entered into a ledger of this name."""
    left, own = _noted(staging)
    return left if own == ledger else None


def _noted(staging: Path) -> tuple[CommitId | None, str]:
    """Return the last noted commit, if known, and its ledger."""
    try:
        fields = json.loads((staging / LEFT).read_text(encoding="utf-8"))
        return CommitId.from_json(fields), fields.get("ledger", "")
    except (OSError, ValueError, KeyError, TypeError):
        return None, ""


def has_left(staging: Path, commit: CommitId) -> bool:
    """Return whether ``commit`` is the last noted one."""
    return last_left(staging) == commit


_VALUE = r"(?:'(?:[^'\\]|\\.)*(?:'|$)|\\.|[^\s'\\])*"
_SECRET = re.compile(rf"(?i)\b(?:ssl)?password\s*=\s*{_VALUE}\s*")
_is_of_libpq = re.compile(r"\s*\w+\s*=").match


def without_secrets(address: str) -> str:
    """Return an address without users and passwords.

    It is a URL, several of them, or libpq's ``key=value ...``.  A query, which may hold a key, is
    replaced by a checksum.

    >>> without_secrets("amqp://me:p,/w@host:5672/vhost"), without_secrets("host=h password='a b'")
    ('amqp://host:5672/vhost', 'host=h')
    >>> without_secrets("http://h/x?key=1") == without_secrets("http://h/x?key=2")
    False
    """
    if _is_of_libpq(address):
        return _SECRET.sub("", address).strip()
    place, query = place_and_query(address)
    digest = f"?{blake2b(query.encode(), digest_size=4).hexdigest()}" if query else ""
    return f"{place}{digest}"
