"""A damaged view never gives a wrong answer: the damaged part is built again from the log."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lmdb
import pytest

from tests.unit.state.view_child import GROUP, GROUPS, KEYS, data_of, value_of
from wallaroo.dataflow.plan.model import Plan
from wallaroo.engine.report import TaskReport
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.runtime.batch.commit_protocol import BatchProtocol
from wallaroo.runtime.batch.housekeeping import Housekeeping
from wallaroo.state.checkpoint import open_checkpoint
from wallaroo.state.log.commits import Commit, CommitLog, DeltaRef
from wallaroo.state.log.delta import Entry, Origin, encode
from wallaroo.state.log.history import History
from wallaroo.state.log.storage import LocalStorage
from wallaroo.state.views import view as view_module
from wallaroo.state.views.environments import close_environments, open_environment, writing
from wallaroo.state.views.view import SHARDS, View

CHILD = Path(__file__).with_name("view_child.py")


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_environments()


@pytest.fixture
def history(tmp_path: Path) -> History:
    """One commit with all keys in one group."""
    storage = LocalStorage(str(tmp_path / "log"), is_durable=False)
    for folder in ("commits", "deltas"):
        (tmp_path / "log" / folder).mkdir(parents=True)
    entries = [Entry(0, key, value_of(key)) for key in KEYS]
    content, digest = encode(Origin("c", 0, "deltas/0"), {GROUP: entries})
    storage.publish("deltas/0", content)
    delta = DeltaRef("deltas/0", 0, GROUPS, len(content), len(entries), digest)
    CommitLog(storage).publish(Commit(0, {}, (delta,), checkpoint="c", id="a"))
    return History(storage, (), 0, CommitLog(storage).read)


def caught_up(root: Path, history: History) -> View:
    view = View(root, GROUPS, 0, GROUPS)
    view.catch_up(history)
    return view


def written_view(root: Path, history: History) -> tuple[Path, lmdb.Environment]:
    """Return the file and the open environment of a view that has caught up."""
    caught_up(root, history).close()
    file = data_of(root)
    return file, open_environment(file.parent).environment


def damage(root: Path, old: bytes, new: bytes) -> None:
    """Replace bytes in the file, in all places, as a disk may."""
    close_environments()
    content = data_of(root).read_bytes()
    assert old in content
    assert len(old) == len(new)
    data_of(root).write_bytes(content.replace(old, new))


def test_of_many_values_the_damaged_one_is_read_from_the_log(
    tmp_path: Path, history: History
) -> None:
    caught_up(tmp_path / "view", history).close()
    damage(tmp_path / "view", b"count:0007", b"count:0008")
    view = caught_up(tmp_path / "view", history)
    asked = [*KEYS, b"snot there", b"s" * 1000]

    assert view.read_many(GROUP, 0, asked) == [*map(value_of, KEYS), None, None]
    assert view.rebuilt == 1
    view.close()


def test_a_damaged_value_is_read_from_the_log(tmp_path: Path, history: History) -> None:
    caught_up(tmp_path / "view", history).close()
    damage(tmp_path / "view", b"count:0007", b"count:0008")

    view = caught_up(tmp_path / "view", history)

    assert view.read(GROUP, 0, KEYS[8]) == value_of(KEYS[8])
    assert view.rebuilt == 0
    assert view.read(GROUP, 0, KEYS[7]) == value_of(KEYS[7])
    assert view.rebuilt == 1
    assert {entry.key: entry.value for entry in view.entries(GROUP)} == {
        key: value_of(key) for key in KEYS
    }
    view.close()
    again = caught_up(tmp_path / "view", history)
    assert again.read(GROUP, 0, KEYS[7]) == value_of(KEYS[7])
    assert again.rebuilt == 0
    again.close()


def test_a_damaged_value_that_a_prefix_finds_is_read_from_the_log(
    tmp_path: Path, history: History
) -> None:
    caught_up(tmp_path / "view", history).close()
    damage(tmp_path / "view", b"count:0007", b"count:0008")

    view = caught_up(tmp_path / "view", history)

    wanted = sorted(KEYS[6:9])
    assert view.scan_each(GROUP, 0, wanted) == [(key, key, value_of(key)) for key in wanted]
    assert view.rebuilt == 1
    view.close()


@pytest.mark.parametrize("new", [b"suser-0907", b"\x00user-0007", b"suser-0008"])
def test_a_damaged_key_is_not_taken_for_an_absent_one(
    new: bytes, tmp_path: Path, history: History
) -> None:
    caught_up(tmp_path / "view", history).close()
    damage(tmp_path / "view", b"suser-0007", new[:10])

    view = caught_up(tmp_path / "view", history)

    assert view.read(GROUP, 0, b"suser-0007") == value_of(b"suser-0007")
    assert view.rebuilt == 1
    view.close()


@pytest.mark.parametrize("new", [b"suser-0907", b"\x00user-0007", b"suser-0008"])
@pytest.mark.parametrize("others", [[], [b"suser-0001"], [b"suser-0006", b"suser-0008"]])
def test_a_damaged_key_is_not_taken_for_an_absent_prefix(
    others: list[bytes], new: bytes, tmp_path: Path, history: History
) -> None:
    caught_up(tmp_path / "view", history).close()
    damage(tmp_path / "view", b"suser-0007", new[:10])

    view = caught_up(tmp_path / "view", history)

    wanted = sorted([*others, b"suser-0007"])
    assert view.scan_each(GROUP, 0, wanted) == [(key, key, value_of(key)) for key in wanted]
    assert view.rebuilt == 1
    view.close()


def test_a_snapshot_is_never_made_of_damaged_entries(tmp_path: Path, history: History) -> None:
    caught_up(tmp_path / "view", history).close()
    damage(tmp_path / "view", b"count:0150", b"c_unt:0150")

    view = caught_up(tmp_path / "view", history)

    assert [entry.value for entry in view.entries(GROUP)] == [value_of(key) for key in KEYS]
    assert view.rebuilt == 1
    view.close()


LENGTHS = [0, 100, 4096, 8192, 3 * 4096]


@pytest.mark.parametrize("length", LENGTHS)
def test_a_truncated_view_is_built_again(length: int, tmp_path: Path, history: History) -> None:
    caught_up(tmp_path / "view", history).close()
    close_environments()
    os.truncate(data_of(tmp_path / "view"), length)

    view = caught_up(tmp_path / "view", history)

    assert view.read(GROUP, 0, KEYS[200]) == value_of(KEYS[200])
    assert view.rebuilt == bool(length)  # an empty file is what a new view begins with
    view.close()


@pytest.mark.parametrize("length", LENGTHS)
def test_a_view_truncated_while_this_process_has_it_open_is_built_again(
    length: int, tmp_path: Path, history: History
) -> None:
    caught_up(tmp_path / "view", history).close()
    os.truncate(data_of(tmp_path / "view"), length)

    view = caught_up(tmp_path / "view", history)

    assert view.read(GROUP, 0, KEYS[200]) == value_of(KEYS[200])
    assert view.rebuilt == 1
    view.close()


def run_child(root: Path, what: str) -> subprocess.CompletedProcess[str]:
    close_environments()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, str(CHILD), str(root), what],
        env=environment,
        check=False,
        timeout=400,
        capture_output=True,
        text=True,
    )


def test_any_damaged_page_gives_the_right_answer_or_ends_the_process_once(
    tmp_path: Path, history: History
) -> None:
    """A process that dies of it leaves a report, and the next one removes the view."""
    caught_up(tmp_path / "view", history).close()

    ended = run_child(tmp_path, "pages")

    assert ended.returncode == 0, ended.stderr
    statuses = [[int(word) for word in line.split()] for line in ended.stdout.splitlines()]
    assert len(statuses) > 5
    assert all(line[-1] == 0 for line in statuses), (statuses, ended.stderr)


@pytest.mark.parametrize(("where", "rebuilt"), [("inside", SHARDS), ("SIGBUS", 0), ("SIGKILL", 0)])
def test_a_process_that_crashed_in_the_view_leads_to_a_new_one_once(
    where: str, rebuilt: int, tmp_path: Path, history: History
) -> None:
    """One that was killed, or crashed in code of the application, does not."""
    crashed = run_child(tmp_path, where)
    assert crashed.returncode in (-signal.SIGBUS, -signal.SIGKILL), crashed.stderr

    view = caught_up(tmp_path / "view", history)
    assert view.rebuilt == rebuilt
    assert view.read(GROUP, 0, KEYS[1]) == value_of(KEYS[1])
    view.close()
    again = caught_up(tmp_path / "view", history)
    assert again.rebuilt == 0
    again.close()


def test_a_disk_that_damages_everything_is_named(
    tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = caught_up(tmp_path / "view", history)
    monkeypatch.setattr(view_module, "value_if_whole", lambda stored, found: None)

    with pytest.raises(PeerError, match=r"view/03 is damaged repeatedly.*Replace the disk"):
        view.read(GROUP, 0, KEYS[0])
    view.close()


def test_a_damaged_view_whose_log_is_damaged_too_names_the_file(
    tmp_path: Path, history: History
) -> None:
    caught_up(tmp_path / "view", history).close()
    damage(tmp_path / "view", b"count:0007", b"count:0008")
    file = tmp_path / "log" / "deltas" / "0"
    file.write_bytes(file.read_bytes().replace(b"count:0007", b"count:0008"))
    fresh = History(history._storage, (), 0, CommitLog(history._storage).read)
    view = caught_up(tmp_path / "view", fresh)

    with pytest.raises(CheckpointError, match="deltas/0 is corrupt"):
        view.read(GROUP, 0, KEYS[7])
    view.close()


def test_a_file_that_lmdb_left_shorter_than_its_header_says_is_lengthened(
    tmp_path: Path, history: History
) -> None:
    """LMDB counts pages at the end that it gave back before it wrote them."""
    file, environment = written_view(tmp_path / "view", history)
    length = file.stat().st_size

    with writing(file.parent, environment):
        os.truncate(file, length - 100)

    assert file.stat().st_size == length


def test_a_file_that_is_short_while_it_is_written_is_not_damaged(
    tmp_path: Path, history: History
) -> None:
    file, environment = written_view(tmp_path / "view", history)
    is_short = threading.Event()

    def write() -> None:
        with writing(file.parent, environment):
            os.truncate(file, file.stat().st_size - 100)
            is_short.set()
            time.sleep(0.2)

    with ThreadPoolExecutor() as pool:
        written = pool.submit(write)
        assert is_short.wait(60)
        view = caught_up(tmp_path / "view", history)
        written.result()

    assert view.rebuilt == 0
    assert view.read(GROUP, 0, KEYS[7]) == value_of(KEYS[7])
    view.close()


def test_a_view_may_be_removed_while_it_is_written(tmp_path: Path, history: History) -> None:
    file, environment = written_view(tmp_path / "view", history)
    with writing(file.parent, environment):
        shutil.rmtree(file.parent)
    assert not file.exists()


def test_a_rebuilt_part_of_a_view_is_logged_once_for_each_worker(tmp_path: Path) -> None:
    reports = [
        TaskReport(0, task, "a", worker=worker, notes={"rebuilt_shards": shards})
        for task, worker, shards in ((0, "one", 1.0), (1, "one", 2.0), (2, "two", 0.0))
    ]
    checkpoint = open_checkpoint(tmp_path / "checkpoint", is_durable=False)
    lines: list[str] = []
    housekeeping = Housekeeping(checkpoint, 8, 4)
    plan = Plan("nothing", (), (), ())
    protocol = BatchProtocol(plan, checkpoint, {}, housekeeping, {}, (), lines.append)

    assert protocol.accepted(0, (3,), lambda: reports) == reports

    (line,) = lines
    assert "the view of the state on 'one' was damaged: 3 of its parts" in line
    checkpoint.release()


def test_the_files_of_a_view_are_for_this_user_only(tmp_path: Path, history: History) -> None:
    before = os.umask(0)
    try:
        caught_up(tmp_path / "view", history).close()
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "view").rglob("*")}
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items()), modes


def test_a_view_that_is_removed_under_one_reader_is_made_again_for_another(
    tmp_path: Path, history: History
) -> None:
    """A task at low latency reads one view while a thread of it brings another one up to date."""
    first = caught_up(tmp_path / "view", history)
    shutil.rmtree(tmp_path / "view")

    second = caught_up(tmp_path / "view", history)

    assert [first.read(GROUP, 0, key) for key in KEYS] == [value_of(key) for key in KEYS]
    assert [second.read(GROUP, 0, key) for key in KEYS] == [value_of(key) for key in KEYS]
    assert (first.rebuilt, second.rebuilt) == (0, 0)
    first.close()
    second.close()


def test_an_environment_is_open_once_however_many_threads_ask(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        opened = list(threads.map(lambda _: open_environment(tmp_path / "00"), range(64)))
    assert len({id(one.environment) for one in opened}) == 1
    assert not any(one.was_damaged for one in opened)


def test_the_views_of_runs_that_are_over_take_no_addresses(tmp_path: Path) -> None:
    """A session may have hundreds of runs, each with a view of its own; every shard maps 64 GiB."""
    for number in range(3):
        open_environment(tmp_path / f"view-{number}" / "00")
        shutil.rmtree(tmp_path / f"view-{number}")

    open_environment(tmp_path / "view-3" / "00")

    assert maps_of(tmp_path / "view-3") == 1
    assert sum(maps_of(tmp_path / f"view-{number}") for number in range(3)) == 0


def test_views_that_are_kept_take_addresses_as_long_as_there_is_room(tmp_path: Path) -> None:
    """Each run of a session has a checkpoint that stays; the oldest view is in use."""
    read = open_environment(tmp_path / "view-0" / "00", 3).environment.begin()
    for number in range(1, 5):
        open_environment(tmp_path / f"view-{number}" / "00", 3)

    kept = [maps_of(tmp_path / f"view-{number}") for number in range(5)]
    assert kept == [1, 0, 0, 1, 1]

    del read
    for shard in range(4):
        open_environment(tmp_path / "view-5" / f"{shard:02d}", 3)

    kept = [maps_of(tmp_path / f"view-{number}") for number in range(6)]
    assert kept == [0, 0, 0, 0, 0, 4]


def maps_of(view: Path) -> int:
    """How many mappings of files in a view this process has."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return sum(f"{view}/" in line for line in maps if "data.mdb" in line)
