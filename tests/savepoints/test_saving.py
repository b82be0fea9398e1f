"""Savepoints of stopped and of running applications, and runs that start from them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stores.stored_driver import KEYS, expected, new_run, raise_limit
from tests.unit.runtime.applications import until
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.checkpoints.maintenance.verification import verify
from wallaroo.checkpoints.savepoints.places import Manifest
from wallaroo.checkpoints.savepoints.saving import save
from wallaroo.cli.main import main
from wallaroo.errors import CheckpointError, WallarooError

EVENTS = 1200


def quiet(_line: str) -> None:
    """Report nowhere."""


def grow(folder: Path, upto: int) -> None:
    """Let the input have so many events."""
    file = folder / "in.txt"
    there = len(file.read_text().splitlines()) if file.exists() else 0
    with file.open("a") as grown:
        grown.writelines(f"{number}\n" for number in range(there, upto))


def run_to_end(folder: Path, place: str, *options: str) -> WallarooError | None:
    """Run in this process; return the error that ended it."""
    run = new_run(folder, place, *options)
    run.begin()
    assert run.wait(400)
    return run.exception


def lines(folder: Path, name: str = "out.txt") -> list[str]:
    return sorted((folder / name).read_text().splitlines())


def read_upto(place: Path) -> int:
    """Return how many events the state has, at the newest commit."""
    events: int = CheckpointReader(place).commits()[-1].offsets["in"][1]
    return events


def test_a_savepoint_of_a_stopped_application_is_continued_exactly_once(tmp_path: Path) -> None:
    grow(tmp_path, EVENTS)
    assert run_to_end(tmp_path, str(tmp_path / "state")) is None

    manifest = save(str(tmp_path / "state"), str(tmp_path / "saved"), quiet)
    grow(tmp_path, 2 * EVENTS)
    again = [f"--from-savepoint={tmp_path / 'saved'}"]
    assert run_to_end(tmp_path, str(tmp_path / "new"), *again) is None
    grow(tmp_path, 3 * EVENTS)
    assert run_to_end(tmp_path, str(tmp_path / "new"), *again) is None  # a restart

    assert isinstance(manifest, Manifest)
    assert lines(tmp_path) == expected(3 * EVENTS)
    assert not verify(tmp_path / "new").damages
    assert not verify(tmp_path / "saved").damages


def started(folder: Path, place: str, *options: str, **variables: str) -> subprocess.Popen[bytes]:
    """Start the program that counts, slowly enough to be saved meanwhile."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.stores.stored_driver", str(folder), place, *options],
        env={**os.environ, "STORED_PAUSE_S": "0.01", **variables},
    )


def saving(folder: Path, target: Path, **variables: str) -> int:
    """Save the checkpoint by the command; return its exit code."""
    command = [sys.executable, "-m", "wallaroo", "state", "save", str(folder), str(target)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    return subprocess.run(command, env=environment, check=False, timeout=400).returncode


def has_commit(folder: Path, after: int) -> bool:
    try:
        return read_upto(folder) > after
    except (CheckpointError, IndexError):
        return False


def until_commit(folder: Path, after: int = 0) -> None:
    """Wait until the application has read more than so many events."""
    until(lambda: has_commit(folder, after))


def test_forks_of_a_running_application_are_exact_and_so_is_the_original(tmp_path: Path) -> None:
    """While the application is killed and continued."""
    events = 8 * EVENTS
    grow(tmp_path, events)
    state = tmp_path / "state"
    limit = tmp_path / "limit"
    raise_limit(limit, events // 4)
    run = started(tmp_path, str(state), STORED_LIMIT=str(limit))
    until_commit(state)
    save(str(state), str(tmp_path / "saved0"), quiet)
    run.kill()
    run.wait()
    run = started(tmp_path, str(state), STORED_LIMIT=str(limit))
    save(str(state), str(tmp_path / "saved1"), quiet)  # beside a start
    raise_limit(limit, events // 2)
    until_commit(state, read_upto(tmp_path / "saved1"))
    save(str(state), str(tmp_path / "saved2"), quiet)
    assert run.poll() is None, "the run ended before it was saved"
    raise_limit(limit, events)

    for number in range(3):
        options = (f"--from-savepoint={tmp_path}/saved{number}", "--fork")
        out = f"--out=fork{number}.txt"
        assert run_to_end(tmp_path, str(tmp_path / f"fork{number}"), *options, out) is None
    assert run.wait(400) == 0

    assert lines(tmp_path) == expected(events)
    for number in range(3):
        target = tmp_path / f"saved{number}"
        after = read_upto(target)
        assert 0 < after < events
        wanted = sorted(f"{each} {each // KEYS + 1}" for each in range(after, events))
        assert lines(tmp_path, f"fork{number}.txt") == wanted
        assert not verify(target).damages
        assert not verify(tmp_path / f"fork{number}").damages


@pytest.mark.parametrize("point", ["rename:5", "manifest.rename:1"])
def test_what_a_killed_saver_leaves_is_no_savepoint(tmp_path: Path, point: str) -> None:
    grow(tmp_path, EVENTS)
    assert run_to_end(tmp_path, str(tmp_path / "state")) is None
    saved = str(tmp_path / "saved")

    killed = saving(tmp_path / "state", tmp_path / "saved", WALLAROO_FAULT=f"savepoint.{point}")

    assert killed == -signal.SIGKILL
    error = run_to_end(tmp_path, str(tmp_path / "new"), f"--from-savepoint={saved}")
    assert "was not finished" in str(error)
    assert main(["state", "save", str(tmp_path / "state"), saved]) == 1


@pytest.mark.parametrize("point", ["savepoint.rename:2", "savepoint.move:1", "savepoint.move:3"])
def test_a_start_that_is_killed_is_begun_again(tmp_path: Path, point: str) -> None:
    grow(tmp_path, EVENTS)
    assert run_to_end(tmp_path, str(tmp_path / "state")) is None
    save(str(tmp_path / "state"), str(tmp_path / "saved"), quiet)
    grow(tmp_path, 2 * EVENTS)
    options = (f"--from-savepoint={tmp_path / 'saved'}",)

    killed = started(tmp_path, str(tmp_path / "new"), *options, WALLAROO_FAULT=point)
    assert killed.wait(400) == -signal.SIGKILL
    assert run_to_end(tmp_path, str(tmp_path / "new"), *options) is None

    assert lines(tmp_path) == expected(2 * EVENTS)


def test_every_damaged_file_of_a_savepoint_is_found(tmp_path: Path) -> None:
    grow(tmp_path, EVENTS)
    assert run_to_end(tmp_path, str(tmp_path / "state")) is None
    saved = tmp_path / "saved"
    manifest = save(str(tmp_path / "state"), str(saved), quiet)
    assert len(manifest.files) > 6
    for number, name in enumerate(["savepoint.json", *(file.name for file in manifest.files)]):
        path = saved / name
        whole = path.read_bytes()
        at = len(whole) // 2
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])

        new = tmp_path / f"new{number}"
        error = run_to_end(tmp_path, str(new), f"--from-savepoint={saved}")

        assert "damaged" in str(error), name
        assert not (new / "format.json").exists()
        path.write_bytes(whole)
    assert not verify(saved).damages
    (saved / manifest.files[0].name).unlink()
    assert "cannot be read" in str(
        run_to_end(tmp_path, str(tmp_path / "new"), f"--from-savepoint={saved}")
    )
    assert [damage.file for damage in verify(saved).damages] == [manifest.files[0].name]


def test_what_cannot_be_is_refused_with_a_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grow(tmp_path, EVENTS)
    state = str(tmp_path / "state")
    saved = str(tmp_path / "saved")
    assert main(["state", "save", state, saved]) == 1
    assert "is not a checkpoint" in capsys.readouterr().err
    assert run_to_end(tmp_path, state) is None
    assert main(["state", "save", state, f"{state}/inside"]) == 1
    assert "inside is inside of the checkpoint" in capsys.readouterr().err
    assert main(["state", "save", state, saved]) == 0
    assert "saved commit " in capsys.readouterr().out
    assert main(["state", "save", state, saved]) == 1
    assert "is not empty, and a savepoint replaces nothing" in capsys.readouterr().err

    refusals = {
        "is a savepoint, which stays as it is": run_to_end(tmp_path, saved),
        "has a past of its own": run_to_end(tmp_path, state, f"--from-savepoint={saved}"),
        "is not a savepoint": run_to_end(
            tmp_path, str(tmp_path / "a"), f"--from-savepoint={tmp_path}"
        ),
        "is not empty and not a checkpoint": run_to_end(
            tmp_path, str(tmp_path), f"--from-savepoint={saved}"
        ),
        # the original's file
        "checkpoint": run_to_end(
            tmp_path, str(tmp_path / "b"), f"--from-savepoint={saved}", "--fork"
        ),
    }
    assert [words for words, error in refusals.items() if words not in str(error)] == []
    with pytest.raises(ValueError, match="begins from a savepoint"):
        new_run(tmp_path, state, "--fork")
    with pytest.raises(ValueError, match="Give a new checkpoint"):
        new_run(tmp_path, state, f"--from-savepoint={saved}", "--fresh")
    assert lines(tmp_path) == expected(EVENTS)
