"""State that a command removes: as a commit of its own, and without a word to sinks and sources."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.durable.commit_id import CommitId
from wallaroo.state.checkpoint import open_checkpoint

Run = Callable[..., tuple[int, str, str]]


def keys_of(root: Path, step: str = "count") -> set[Any]:
    return {entry.key for entry in CheckpointReader(root).at().entries(step)}


def filled(begin: Callable[..., Any]) -> Any:
    """Ten keys in each of two steps, in three batches; no run holds the checkpoint."""
    book = begin()
    for batch in range(3):
        book.write({(step, f"k{n}"): batch for step in ("count", "market") for n in range(10)})
    book.close()
    return book


def test_keys_are_removed_as_a_commit_of_its_own(begin: Callable[..., Any], wallaroo: Run) -> None:
    book = filled(begin)

    code, out, _ = wallaroo("state", "drop", book.root, "count", "k1", "'k2'")

    assert (code, out) == (0, "removed 2 entries of step 'count' as commit 3\n")
    assert keys_of(book.root) == {f"k{n}" for n in (0, *range(3, 10))}
    assert keys_of(book.root, "market") == {f"k{n}" for n in range(10)}
    assert CheckpointReader(book.root).at().sizes()["count"].keys == 8
    listed = wallaroo("state", "list", "--checkpoint", book.root, "--commits")[1]
    assert "removed 2 keys of step 'count'" in listed


def test_all_state_of_a_step_is_removed(begin: Callable[..., Any], wallaroo: Run) -> None:
    book = filled(begin)

    code, out, _ = wallaroo("state", "drop", book.root, "count", "--all")

    assert (code, out) == (0, "removed 10 entries of step 'count' as commit 3\n")
    sizes = CheckpointReader(book.root).at().sizes()
    assert (sizes["count"].keys, sizes["market"].keys) == (0, 10)
    assert "has no state" in wallaroo("state", "drop", book.root, "count", "--all")[1]


def test_a_run_goes_on_after_an_edit_with_views_and_snapshots_that_lack_what_was_removed(
    begin: Callable[..., Any], wallaroo: Run
) -> None:
    book = filled(begin)
    wallaroo("state", "drop", book.root, "count", "k1")

    again = begin()
    for _ in range(66):  # more than a turn of snapshots
        again.write({("count", "k2"): 7})
    again.close()

    assert keys_of(book.root) == {f"k{n}" for n in range(10) if n != 1}
    assert not wallaroo("state", "verify", book.root)[0]


def test_sinks_see_the_batch_before_an_edit_as_their_last(
    begin: Callable[..., Any], wallaroo: Run
) -> None:
    """They commit output of batches; an edit has none."""
    book = filled(begin)
    wallaroo("state", "drop", book.root, "count", "k1")
    wallaroo("state", "drop", book.root, "count", "k2")

    checkpoint = open_checkpoint(book.root, is_durable=False)

    assert checkpoint.last is not None
    assert checkpoint.last.batch == 4
    assert checkpoint.last.offsets == book.last.offsets
    assert checkpoint.history.last == CommitId(checkpoint.id, 2, book.last.id)
    checkpoint.release()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("count", "k1", "absent"), "step 'count' has no key 'absent' at commit 2. Nothing was"),
        (("unknown", "k1"), "has no state step 'unknown'"),
        (("count", "k1", "--key-type", "int"), "no int can be read from key 'k1'"),
    ],
)
def test_what_cannot_be_removed_is_reported_and_nothing_is(
    arguments: tuple[str, ...], message: str, begin: Callable[..., Any], wallaroo: Run
) -> None:
    book = filled(begin)

    code, _, errors = wallaroo("state", "drop", book.root, *arguments)

    assert code == 1
    assert message in errors
    assert CheckpointReader(book.root).at().commit.batch == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "neither keys nor --all were given"),
        (("k1", "--all"), "--all was given beside keys"),
        (("--all", "--key-type", "int"), "--all was given beside --key-type"),
    ],
)
def test_a_command_line_that_names_no_keys_or_both_them_and_all_is_wrong(
    arguments: tuple[str, ...], message: str, begin: Callable[..., Any], wallaroo: Run
) -> None:
    book = filled(begin)

    code, _, errors = wallaroo("state", "drop", book.root, "count", *arguments)

    assert (code, message in errors) == (2, True)
    assert CheckpointReader(book.root).at().commit.batch == 2


def test_a_key_that_is_named_twice_is_removed_and_counted_once(
    begin: Callable[..., Any], wallaroo: Run
) -> None:
    book = filled(begin)
    wallaroo("state", "drop", book.root, "count", "k1", "k1")
    listed = wallaroo("state", "list", "--commits", "--checkpoint", book.root)[1]
    assert "removed 1 key of step 'count'" in listed


def test_nothing_is_removed_from_a_running_application(
    begin: Callable[..., Any], wallaroo: Run
) -> None:
    book = begin()
    book.write({("count", "k1"): 1})

    code, _, errors = wallaroo("state", "drop", book.root, "count", "k1")

    assert code == 1
    assert "is in use by process" in errors
    assert keys_of(book.root) == {"k1"}


def test_a_folder_that_is_no_checkpoint_does_not_become_one(tmp_path: Path, wallaroo: Run) -> None:
    assert wallaroo("state", "drop", tmp_path / "typo", "count", "k1")[0] == 1
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize(
    ("fault", "is_done"),
    [
        ("storage.write:1", False),
        ("storage.rename:1", False),
        ("edit.before:1", False),
        ("storage.rename:2", False),
        ("storage.sync_folder:2", True),
        ("edit.after:1", True),
    ],
)
def test_a_removal_that_is_killed_has_happened_or_has_not(
    fault: str,
    is_done: bool,
    begin: Callable[..., Any],
    wallaroo: Run,
    killed: Callable[..., None],
) -> None:
    book = filled(begin)

    killed(fault, "state", "drop", book.root, "count", "k1")

    assert ("k1" in keys_of(book.root)) == (not is_done)
    code, _, _ = wallaroo("state", "drop", book.root, "count", "k1")
    assert code == (1 if is_done else 0)
    assert "k1" not in keys_of(book.root)
    assert not wallaroo("state", "verify", book.root)[0]
