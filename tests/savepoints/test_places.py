"""Savepoints between folders and object stores, and those of other machines' checkpoints."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

import wallaroo
from tests.sampling import sampled
from tests.savepoints.test_accepted_input import GENERATED, SLOWLY, copying
from tests.savepoints.test_saving import grow, lines, quiet, read_upto, run_to_end
from tests.stores.conftest import Place
from tests.stores.stored_driver import KEYS, expected
from tests.unit.runtime.applications import GATE, Numbers, until
from wallaroo.checkpoints.savepoints.saving import save
from wallaroo.cli.main import main
from wallaroo.errors import CheckpointError

pytestmark = pytest.mark.s3
EVENTS = 600
CHOSEN = [("folder", "store", "folder"), ("store", "folder", "store")]


@pytest.mark.parametrize(
    ("first", "between", "last"),
    sampled(CHOSEN, sorted({*product(("folder", "store"), repeat=3)} - {*CHOSEN})),
)
def test_a_checkpoint_moves_between_all_storages(
    tmp_path: Path, place: Place, first: str, between: str, last: str
) -> None:
    """Exactly once; a fork of the same savepoint has the rest of the output."""
    check_moves(tmp_path, place.url, first, between, last)


def check_moves(tmp_path: Path, url: str, first: str, between: str, last: str) -> None:
    """Save a checkpoint, and continue and fork it, each in a folder or in the store of a URL."""
    kinds = {"folder": str(tmp_path / "at-"), "store": f"{url}-"}
    state = f"{kinds[first]}first"
    saved = f"{kinds[between]}saved"
    grow(tmp_path, EVENTS)
    assert run_to_end(tmp_path, state) is None

    save(state, saved, quiet)
    grow(tmp_path, 2 * EVENTS)
    fork = (f"--from-savepoint={saved}", "--fork", "--out=fork.txt")
    for _ in range(2):  # the second one is a restart
        assert run_to_end(tmp_path, f"{kinds[last]}new", f"--from-savepoint={saved}") is None
        assert run_to_end(tmp_path, f"{kinds[last]}fork", *fork) is None
        grow(tmp_path, 3 * EVENTS)
    assert run_to_end(tmp_path, f"{kinds[last]}new") is None
    assert run_to_end(tmp_path, f"{kinds[last]}fork", fork[2]) is None

    assert lines(tmp_path) == expected(3 * EVENTS)
    rest = sorted(f"{each} {each // KEYS + 1}" for each in range(EVENTS, 3 * EVENTS))
    assert lines(tmp_path, "fork.txt") == rest


@pytest.mark.parametrize("point", ["store.fence:1", "store.append:1", "store.appended:1"])
def test_a_start_into_a_store_that_is_killed_is_begun_again(
    tmp_path: Path, place: Place, point: str
) -> None:
    """With input that waits in a spool."""
    source = wallaroo.GenSourceConfig("in", Numbers(GENERATED))
    GATE.clear()  # it is saved before the end of the input
    try:
        run = copying(source, tmp_path, "out.txt", checkpoint=tmp_path / "state", tuning=SLOWLY)
        until((tmp_path / "out.txt").exists)
        save(str(tmp_path / "state"), str(tmp_path / "saved"), quiet)
    finally:
        GATE.set()
    assert run.wait(400)
    kill = f"import os; os.environ['WALLAROO_FAULT'] = '{point}'; "
    begin = (
        "from tests.savepoints.test_places import begun_in_a_store as begin; "
        f"begin({str(tmp_path)!r}, {place.url!r})"
    )
    killed = subprocess.run([sys.executable, "-c", kill + begin], check=False, timeout=400)
    assert killed.returncode == -signal.SIGKILL

    begun_in_a_store(str(tmp_path), place.url)

    after = read_upto(tmp_path / "saved")
    assert after < GENERATED
    rest = [str(number) for number in range(after, GENERATED)]
    assert (tmp_path / "fork.txt").read_text().splitlines() == rest


def begun_in_a_store(folder: str, url: str) -> None:
    """Fork the application of the test above, with a checkpoint in a store; run to the end."""
    source = wallaroo.GenSourceConfig("in", Numbers(GENERATED))
    saved = {"from_savepoint": Path(folder, "saved"), "is_fork": True}
    fork = copying(source, Path(folder), "fork.txt", checkpoint=url, **saved)
    assert fork.wait(400)
    assert fork.exception is None, fork.exception


def test_a_machine_without_the_cache_saves_from_the_store(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(tmp_path, EVENTS)
    assert run_to_end(tmp_path, place.url) is None
    monkeypatch.setenv("WALLAROO_CACHE", str(tmp_path / "elsewhere"))

    save(place.url, str(tmp_path / "saved"), quiet)
    grow(tmp_path, 2 * EVENTS)
    again = f"--from-savepoint={tmp_path / 'saved'}"
    assert run_to_end(tmp_path, str(tmp_path / "new"), again) is None

    assert lines(tmp_path) == expected(2 * EVENTS)
    assert not (tmp_path / "elsewhere").exists()


def test_half_a_savepoint_in_a_store_is_refused(
    tmp_path: Path, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    grow(tmp_path, EVENTS)
    assert run_to_end(tmp_path, str(tmp_path / "state")) is None
    saved = f"{place.url}/saved"
    save(str(tmp_path / "state"), saved, quiet)
    assert main(["state", "save", str(tmp_path / "state"), saved]) == 1
    assert "is not empty, and a savepoint replaces nothing." in capsys.readouterr().err
    manifest = place.objects / "saved" / "files" / "savepoint.json"
    assert manifest.exists()

    whole = sorted((place.objects / "saved" / "files" / "snapshots").iterdir())[0]
    whole.write_bytes(whole.read_bytes()[:-1])
    damaged = run_to_end(tmp_path, str(tmp_path / "new"), f"--from-savepoint={saved}")
    manifest.unlink()
    half = run_to_end(tmp_path, str(tmp_path / "new"), f"--from-savepoint={saved}")

    assert "is damaged: snapshots/" in str(damaged)
    assert "was not finished" in str(half)
    assert main(["state", "save", str(tmp_path / "state"), saved]) == 1
    assert "perhaps half of one" in capsys.readouterr().err
    shutil.rmtree(place.objects / "saved")
    assert main(["state", "save", str(tmp_path / "state"), saved]) == 0


def test_a_store_without_a_commit_is_nothing_to_save(tmp_path: Path, place: Place) -> None:
    with pytest.raises(CheckpointError, match="nothing to save"):
        save(place.url, str(tmp_path / "saved"), quiet)


def test_the_files_of_a_savepoint_in_a_store_are_a_folder_to_read(
    tmp_path: Path, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """The URL itself is refused, and the message names these files."""
    grow(tmp_path, EVENTS)
    assert run_to_end(tmp_path, str(tmp_path / "state")) is None
    save(str(tmp_path / "state"), place.url, quiet)

    assert main(["state", "verify", place.url]) == 1
    assert f"copy its files, which are below {place.url}/files/" in capsys.readouterr().err

    folder = tmp_path / "copied"
    shutil.copytree(place.objects / "files", folder)
    assert main(["state", "verify", str(folder)]) == 0
    assert main(["state", "list", "--checkpoint", str(folder)]) == 0
