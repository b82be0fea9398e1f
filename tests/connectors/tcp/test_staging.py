"""Staged output: what a writer stages is read back whole, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wallaroo.errors import CheckpointError
from wallaroo.instrumentation.tuning import DEFAULT
from wallaroo.sinks.interface import WriteContext
from wallaroo.sinks.staging import StagedWriter, read_staged, remove_orphans

LARGE = DEFAULT.inline_bytes_max + 1  # bytes that go into a file


def writer(folder: Path, attempt: str = "a1") -> StagedWriter:
    return StagedWriter(WriteContext("s", 7, 3, attempt, folder, True))


@pytest.mark.parametrize(
    "outputs", [[b"one", b"", b"three"], [b"x" * 40_000] * 80], ids=["small", "large"]
)
def test_what_was_staged_is_read_back_with_its_boundaries(
    tmp_path: Path, outputs: list[bytes]
) -> None:
    staging = writer(tmp_path)
    staging.write(outputs[:2])
    staging.write(outputs[2:])
    token = json.loads(json.dumps(staging.prepare()))
    staged = read_staged(tmp_path, token)
    assert bytes(staged.body) == b"".join(outputs)
    assert list(staged.lengths) == [len(output) for output in outputs]
    assert (token["bytes"], token["outputs"]) == (len(staged.body), len(outputs))


def test_small_output_costs_no_file(tmp_path: Path) -> None:
    staging = writer(tmp_path)
    staging.write([b"x" * DEFAULT.inline_bytes_max])
    assert staging.prepare()["inline"]  # type: ignore[index]  # something was written
    assert list(tmp_path.iterdir()) == []


def test_a_task_without_output_has_no_token(tmp_path: Path) -> None:
    staging = writer(tmp_path)
    staging.write([])
    assert staging.prepare() is None


def test_an_aborted_attempt_leaves_no_file(tmp_path: Path) -> None:
    staging = writer(tmp_path)
    staging.write([b"x" * 3_000_000])
    assert len(list(tmp_path.iterdir())) == 1
    staging.abort()
    assert list(tmp_path.iterdir()) == []


def test_two_attempts_never_share_a_file(tmp_path: Path) -> None:
    tokens = []
    for attempt in ("a/1", "a 2"):
        staging = writer(tmp_path, attempt)
        staging.write([attempt.encode() * LARGE])
        tokens.append(staging.prepare())
    assert [bytes(read_staged(tmp_path, token).body[:3]) for token in tokens if token] == [
        b"a/1",
        b"a 2",
    ]


@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "empty"])
def test_damaged_output_is_an_error_that_names_the_file(tmp_path: Path, damage: str) -> None:
    staging = writer(tmp_path)
    staging.write([b"x" * LARGE])
    token = staging.prepare()
    assert token is not None
    path = tmp_path / token["file"]
    raw = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    else:
        raw[100] ^= damage == "flip"
        path.write_bytes({"cut": bytes(raw[:-1]), "flip": bytes(raw), "empty": b""}[damage])
    with pytest.raises(CheckpointError, match=token["file"]):
        read_staged(tmp_path, token)


def test_litter_is_removed_and_committed_output_kept(tmp_path: Path) -> None:
    tokens = []
    for attempt in ("kept", "litter"):
        staging = writer(tmp_path, attempt)
        staging.write([b"x" * LARGE])
        tokens.append(staging.prepare())
    assert tokens[0] is not None
    remove_orphans(tmp_path, {tokens[0]["file"]})
    assert [path.name for path in tmp_path.iterdir()] == [tokens[0]["file"]]
