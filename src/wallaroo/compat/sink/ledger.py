"""The ledger of a sink program's transactions: ``two_phase.json`` in the outbox.

Where it runs: driver.

The file is written whole, and is on disk (in durable mode) before `write_ledger` returns.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from wallaroo.durable.commit_id import CommitId
from wallaroo.durable.whole_file import write_whole
from wallaroo.errors import CheckpointError
from wallaroo.sinks.staging import WAYS_ON

FORMAT = 1
NAME = "two_phase.json"


@dataclass(frozen=True, slots=True)
class TransactionLedger:
    """The newest transaction that the program voted to commit.

    With it the program has everything up to ``offset``.
    """

    last: CommitId
    offset: int = 0  # bytes of output up to and with the transaction
    transaction: str = ""


def read_ledger(staging: Path, checkpoint: str) -> TransactionLedger:
    """Read the ledger of a checkpoint's output.  Raises CheckpointError if it is damaged."""
    path = staging / NAME
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        ledger = TransactionLedger(
            CommitId.from_json(fields), int(fields["offset"]), fields["transaction"]
        )
        if fields["format"] != FORMAT or ledger.last.checkpoint != checkpoint:
            raise ValueError("it belongs to another checkpoint or version of wallaroo")
    except FileNotFoundError:
        return TransactionLedger(CommitId(checkpoint))
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be used: {error}. {WAYS_ON}") from error
    return ledger


def write_ledger(staging: Path, ledger: TransactionLedger, is_durable: bool) -> None:
    """Store the ledger."""
    fields = {
        "format": FORMAT,
        "offset": ledger.offset,
        "transaction": ledger.transaction,
        **ledger.last.to_json(),
    }
    content = json.dumps(fields).encode()
    write_whole(staging / NAME, content, is_durable=is_durable, points="connector.ledger")
