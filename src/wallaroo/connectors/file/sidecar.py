"""The sidecar of a single output file, which describes its committed part.

Where it runs: driver.

``out.txt.committed`` is the sidecar of ``out.txt``.

The invariant: the bytes of a commit are on disk before the sidecar names them.  It names the
checkpoint and the sink that write the file, and for each of the newest commits with output its end
and a digest of the bytes before that end, so that a file that was replaced, cut or changed near its
end is noticed, and so that the file can be moved back to any of these commits.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from wallaroo.durable.commit_id import CommitId
from wallaroo.durable.whole_file import USER_FILE, write_whole
from wallaroo.errors import CheckpointError

FORMAT = 2  # format 1 named batches by number only
SUFFIX = ".committed"
TAIL_BYTES = 1 << 16  # before an end, in its digest: read at every start, so not the whole file
ENDS_KEPT = 128  # commits with output that a file can be moved back to; some 130 bytes each


@dataclass(frozen=True, slots=True)
class End:
    """The end of one commit's output.

    ``tail`` is the digest of the bytes before it.
    """

    batch: int
    id: str
    length: int
    tail: str


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The committed part of a file; ``ends`` is never empty, oldest first."""

    checkpoint: str
    sink: str
    ends: tuple[End, ...]
    # the file's end, with its commit, before a rollback that cuts it at the last of ``ends``
    rolled_back: End | None = None

    @property
    def end(self) -> End:
        """Return the end of the committed part."""
        return self.ends[-1]

    @property
    def last(self) -> CommitId:
        """Return the last commit with output."""
        return self.commit_of(self.end)

    def commit_of(self, end: End) -> CommitId:
        return CommitId(self.checkpoint, end.batch, end.id)

    def extended(self, end: End) -> Sidecar:
        """Return the sidecar after one more commit."""
        return Sidecar(self.checkpoint, self.sink, (*self.ends, end)[-ENDS_KEPT:])


def begun(checkpoint: str, sink: str) -> Sidecar:
    """Return the sidecar of an empty file."""
    return Sidecar(checkpoint, sink, (End(-1, "", 0, tail_digest(b"")),))


def tail_digest(tail: bytes) -> str:
    """Return the digest of the last ``TAIL_BYTES`` of some content, or of all of it."""
    return blake2b(tail, digest_size=12).hexdigest()


def sidecar_of(target: Path) -> Path:
    return target.with_name(target.name + SUFFIX)


def write_sidecar(target: Path, sidecar: Sidecar, is_durable: bool, writer: str) -> None:
    """Publish the committed part; ``writer`` is the run's epoch."""
    cut = sidecar.rolled_back
    body = {
        "batch": sidecar.end.batch,
        "length": sidecar.end.length,
        "checkpoint": sidecar.checkpoint,
        "sink": sidecar.sink,
        "ends": [_fields(end) for end in sidecar.ends],
        "rolled_back": None if cut is None else _fields(cut),
    }
    content = json.dumps({"format": FORMAT, **body, "crc": _crc(body)}).encode()
    path = sidecar_of(target)
    write_whole(
        path, content, is_durable=is_durable, points="file.sidecar", mode=USER_FILE, writer=writer
    )


def read_sidecar(target: Path) -> Sidecar | None:
    """Return the committed part; None without a sidecar.

    Raises CheckpointError if the sidecar is damaged or of another version.
    """
    path = sidecar_of(target)
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        if body.pop("format") != FORMAT:
            raise ValueError("another version of wallaroo wrote it")
        if body.pop("crc") != _crc(body):
            raise ValueError("its checksum does not match")
        cut = body["rolled_back"]
        return Sidecar(
            body["checkpoint"],
            body["sink"],
            tuple(_end(fields) for fields in body["ends"]),
            None if cut is None else _end(cut),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path} cannot be used ({error}), so which part of {target} is committed is unknown. "
            f"Restore it from a backup; or move both files to another place, and this sink begins "
            f"a new file."
        ) from error


def _fields(end: End) -> dict[str, Any]:
    return {"batch": end.batch, "commit": end.id, "length": end.length, "tail": end.tail}


def _end(fields: dict[str, Any]) -> End:
    return End(
        int(fields["batch"]), str(fields["commit"]), int(fields["length"]), str(fields["tail"])
    )


def _crc(body: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())
