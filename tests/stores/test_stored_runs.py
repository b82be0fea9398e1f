"""Runs with a checkpoint in an object store: killed, moved to other machines, taken over."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import wallaroo
from tests.connectors.files.s3.server import SECRET
from tests.sampling import sampled
from tests.stores.conftest import Place, Ran
from tests.stores.fault_proxy import ALL, NONE, Faults, running_proxy
from tests.stores.machines import EVENTS, KILLED, Input, output, started
from tests.stores.stored_driver import expected, new_run, raise_limit
from tests.unit.runtime.applications import ROOT, Numbers, line, text, until
from wallaroo.cli.doctor.command import examine_store
from wallaroo.cli.main import main
from wallaroo.cli.send.acknowledged import send_acknowledged
from wallaroo.cli.send.sending import of_payloads
from wallaroo.errors import CheckpointError, PeerError, TakenOverError, WallarooError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.state.checkpoint import open_checkpoint
from wallaroo.state.log.commits import CommitLog
from wallaroo.state.log.lease import LEASE
from wallaroo.state.log.owners import owner_words
from wallaroo.state.log.storage import LocalStorage
from wallaroo.state.store.stored_checkpoint import StoredCheckpoint, cache_folder

pytestmark = pytest.mark.s3


def run_to_end(folder: Path, place: Place, *options: str) -> WallarooError | None:
    """Run in this process; return the error that ended it."""
    run = new_run(folder, place.url, *options)
    run.begin()
    assert run.wait(400)
    return run.exception


def test_other_machines_continue_exactly_once(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache of a machine that was away is rebuilt; one that is lost is not needed."""
    file = Input(tmp_path)
    for machine in ("a", "b", "a", "lost", "lost"):
        monkeypatch.setenv("WALLAROO_CACHE", str(tmp_path / machine))
        if machine == "lost":
            shutil.rmtree(tmp_path / machine, ignore_errors=True)
        file.grow()

        assert run_to_end(tmp_path, place) is None

        assert output(tmp_path) == expected(file.events)
    # no two machines name their views alike: on a cluster, they are on the same workers
    assert len({path.name for path in tmp_path.glob("*/*/view/*")}) == 3
    # objects before the newest image are deleted, but no fence
    numbers = sorted(int(path.name) for path in (place.objects / "log").iterdir())
    assert 5 < len(numbers) < numbers[-1]
    assert numbers[0] == 0
    assert list((place.objects / "swept").iterdir())


def test_waiting_output_leaves_from_another_machine(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an outage of the sink's system commits add to it that no image has."""
    file = Input(tmp_path)
    file.grow()
    database = tmp_path / "out.db"
    options = f"--database={database}", "--image-every=1000"
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("CREATE TABLE lines (line TEXT)")
        other.execute("BEGIN EXCLUSIVE")
        monkeypatch.setenv("WALLAROO_CACHE", str(tmp_path / "a"))
        run = new_run(tmp_path, place.url, *options)
        run.begin()
        until(lambda: run.status().batches >= 7)
        run.stop()
        assert run.wait(400)
        other.execute("ROLLBACK")

        monkeypatch.setenv("WALLAROO_CACHE", str(tmp_path / "b"))
        assert run_to_end(tmp_path, place, *options) is None

        rows = [text for (text,) in other.execute("SELECT line FROM lines")]
    assert sorted(rows) == expected(file.events)


def test_what_is_stored_holds_no_secret(tmp_path: Path, place: Place) -> None:
    """Credentials stay in the environment."""
    Input(tmp_path).grow()
    assert run_to_end(tmp_path, place) is None

    files = [*place.objects.rglob("*"), *cache_folder(place.url).rglob("*")]
    stored = [path for path in files if path.is_file()]
    assert len(stored) > 10
    assert not [path for path in stored if path.name == LEASE]  # there is no standby to read it
    assert not [path for path in stored if SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("point", "machine"),
    sampled(
        [
            ("store.note.rename", "other"),
            ("store.fence", "same"),
            ("store.append", "same"),
            ("store.appended", "other"),
            ("store.sweep", "other"),
            ("storage.published", "other"),
            ("commit.after", "same"),
        ],
        [
            ("store.note.rename", "same"),
            ("store.fence", "other"),
            ("store.append", "other"),
            ("store.appended", "same"),
            ("store.sweep", "same"),
            ("storage.published", "same"),
            ("commit.after", "other"),
        ],
    ),
)
def test_a_killed_run_is_continued(tmp_path: Path, ran: Ran, point: str, machine: str) -> None:
    """On the same machine, which has its files, and on another one, which has none."""
    file = Input(tmp_path)
    file.grow(2 * EVENTS)
    is_early = point in ("store.note.rename", "store.fence")
    nth = 1 if is_early or point == "store.sweep" else 3
    if is_early:  # of a run that is not the first
        assert ran("same")[0] == 0
        file.grow()
    assert ran("same", WALLAROO_FAULT=f"{point}:{nth}")[0] == KILLED

    options = ["--take-over"] if machine == "other" else []
    code, said = ran(machine, *options)

    assert code == 0, said
    assert output(tmp_path) == expected(file.events)


def test_another_machine_has_to_ask_for_a_killed_runs_checkpoint(
    tmp_path: Path, place: Place
) -> None:
    """A run that ended in order leaves it to anyone, a killed one may be alive."""
    Input(tmp_path).grow()
    killed = started(tmp_path, place, "a", WALLAROO_FAULT="store.appended:2")
    assert killed.wait(400) == KILLED

    refused = started(tmp_path, place, "b")

    said, _ = refused.communicate(timeout=400)
    assert refused.returncode == 1
    assert f"checkpoint {place.url} is in use by process {killed.pid} on " in said
    assert "`wallaroo run --take-over` continues in its place" in said


def test_a_run_that_was_taken_over_commits_nothing(tmp_path: Path, place: Place) -> None:
    """It is stopped as by a paused machine, and ends with exit code 4 when it wakes up."""
    file = Input(tmp_path)
    file.grow(2 * EVENTS)
    limit = tmp_path / "limit"
    raise_limit(limit, EVENTS)
    first = started(tmp_path, place, "a", STORED_PAUSE_S="0.05", STORED_LIMIT=str(limit))
    log = place.objects / "log"
    until(lambda: log.is_dir() and len(list(log.iterdir())) >= 5)
    first.send_signal(signal.SIGSTOP)
    try:
        second = started(tmp_path, place, "b", "--take-over")
        assert second.wait(400) == 0
    finally:
        raise_limit(limit, file.events)
        first.send_signal(signal.SIGCONT)

    said, _ = first.communicate(timeout=400)
    assert first.returncode == 4
    assert f"checkpoint {place.url} was taken over by epoch 2, process {second.pid} on " in said
    assert output(tmp_path) == expected(file.events)


def test_a_run_that_was_held_up_in_a_sink_does_not_set_its_file_back(
    tmp_path: Path, place: Place, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit counts, another machine writes on, and nothing on its own disk shows that."""
    file = Input(tmp_path)
    file.grow()
    codes: list[int] = []
    syncs: list[str] = []

    def hold_up(name: str) -> None:
        syncs.append(name)
        if syncs.count("file.fsync") == 3 and not codes:
            codes.append(ran("b", "--take-over")[0])

    monkeypatch.setattr("wallaroo.connectors.file.single_file.fault_point", hold_up)
    # a process that is stopped does not ask now and then
    monkeypatch.setattr(StoredCheckpoint, "require", lambda stored: None)

    error = run_to_end(tmp_path, place)

    assert codes == [0]
    assert isinstance(error, TakenOverError)
    assert output(tmp_path) == expected(file.events)
    file.grow()
    assert ran("b")[0] == 0
    assert output(tmp_path) == expected(file.events)


def test_an_idle_run_notices_that_it_was_taken_over(
    tmp_path: Path, place: Place, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for the number that it would write next."""
    Input(tmp_path).grow(10)
    monkeypatch.setattr("wallaroo.runtime.batch.batches.Batches.is_finished", False)
    first = new_run(tmp_path, place.url)
    first.start()

    assert ran("b", "--take-over")[0] == 0

    assert first.wait(400)
    assert "was taken over by epoch 2" in str(first.exception)


@pytest.mark.parametrize("seed", sampled([0], [1]))
def test_a_bad_network_loses_and_doubles_nothing(
    tmp_path: Path, place: Place, ran: Ran, seed: int
) -> None:
    """Answers lost, requests doubled, resets, 503 and 409: by turns on two machines, one killed."""
    file = Input(tmp_path)
    faults = Faults(ALL.lost, ALL.duplicated, ALL.reset, ALL.busy, ALL.conflict, (0.0, 0.02))
    with running_proxy(place.port, faults, seed) as proxy:
        for turn in range(3):
            file.grow(3 * EVENTS)
            fault = f"store.appended:{5 + turn}" if turn < 2 else ""
            machine = f"machine{turn % 2}"
            code, said = ran(machine, "--take-over", port=proxy.port, WALLAROO_FAULT=fault)
            assert code in (0, KILLED), said

        assert output(tmp_path) == expected(file.events)
        assert sum(proxy.counts.values()) > proxy.counts["served"] > 40


def test_a_store_that_ignores_conditions_is_refused(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs could overwrite each other's commits there."""
    Input(tmp_path).grow()
    with running_proxy(place.port, NONE) as proxy:
        proxy.ignores_conditions = True
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")

        error = run_to_end(tmp_path, place)

    assert isinstance(error, PeerError)
    assert "ignores conditions (If-None-Match, If-Match)" in str(error)
    assert not (place.objects / "log").exists()


def test_a_fresh_start_begins_empty(tmp_path: Path, place: Place) -> None:
    """What the store held counts no more, on any machine."""
    Input(tmp_path).grow()
    assert run_to_end(tmp_path, place) is None
    (tmp_path / "out.txt").unlink()
    (tmp_path / "out.txt.committed").unlink(missing_ok=True)
    for path in tmp_path.glob("*out.txt*"):
        path.unlink()

    assert run_to_end(tmp_path, place, "--fresh") is None

    assert output(tmp_path) == expected(EVENTS)


def test_input_that_lies_on_another_machine_is_not_left_behind(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is refused before it takes anything over."""
    source = wallaroo.source("made", wallaroo.GenSourceConfig("made", Numbers(50)))
    sink = wallaroo.FileSinkConfig(tmp_path / "out.txt", line)
    made = wallaroo.build_application("made", source.to_sink(sink))
    options = RunOptions(checkpoint=place.url, status_address=None, module_paths=(ROOT,))
    errors = []
    for machine in ("a", "b", "a"):
        monkeypatch.setenv("WALLAROO_CACHE", str(tmp_path / machine))
        run = Run(made, options, InProcessHost())
        run.begin()
        assert run.wait(400)
        errors.append(run.exception)

    assert errors[0] is None
    assert "source 'made' stores its input on the machine that received it" in str(errors[1])
    assert f"the last run was {owner_words()}. Run the application there" in str(errors[1])
    assert errors[2] is None


def test_a_cache_is_no_checkpoint_of_its_own(tmp_path: Path, place: Place) -> None:
    """What is changed there alone would be lost."""
    Input(tmp_path).grow(10)
    assert run_to_end(tmp_path, place) is None

    with pytest.raises(CheckpointError, match="is the local cache of the checkpoint s3://"):
        open_checkpoint(cache_folder(place.url), is_durable=True)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("AWS_SECRET_ACCESS_KEY", "wrong", "is refused: "),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1", "does not answer: "),
    ],
)
def test_a_store_that_cannot_be_used_is_reported(
    tmp_path: Path,
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    said: str,
) -> None:
    """Before anything is begun, within seconds."""
    Input(tmp_path).grow(10)
    monkeypatch.setenv(variable, value)

    error = run_to_end(tmp_path, place)

    assert isinstance(error, PeerError)
    assert said in str(error)
    assert value not in str(error) or variable == "AWS_ENDPOINT_URL"


def test_commands_read_this_machines_cache(
    tmp_path: Path, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are given the URL; those that change a checkpoint refuse it."""
    Input(tmp_path).grow(70)
    assert run_to_end(tmp_path, place) is None

    assert main(["state", "list", "--checkpoint", place.url]) == 0
    assert main(["sql", "select count(*) from state.count", "--checkpoint", place.url]) == 0
    assert main(["state", "verify", place.url]) == 0
    shown = capsys.readouterr().out
    assert "count" in shown
    assert "7" in shown
    assert main(["sink", "skip", place.url, "file", "--batch", "0"]) == 1
    assert "is the local cache of the checkpoint s3://" in capsys.readouterr().err


def test_doctor_tries_the_store(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the first start does."""
    assert str(examine_store(place.url)).startswith("ok    object store s3://bucket/")
    with running_proxy(place.port, NONE) as proxy:
        proxy.ignores_conditions = True
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")

        finding = str(examine_store(place.url))

    assert finding.startswith("fail  object store the object store of s3://bucket/")
    assert "-> Use a store or a version of it that keeps them" in finding


def test_a_missing_bucket_is_reported(tmp_path: Path, place: Place) -> None:
    """It is not created."""
    Input(tmp_path).grow(10)
    run = new_run(tmp_path, "s3://nowhere/app")
    run.begin()
    assert run.wait(400)

    assert "s3://nowhere/app does not exist" in str(run.exception)


def test_a_sender_is_acknowledged_once_its_input_is_processed_in_the_store(
    tmp_path: Path, place: Place
) -> None:
    source = wallaroo.TCPSourceConfig("In", "127.0.0.1", 0, text)
    sink = wallaroo.FileSinkConfig(tmp_path / "out.txt", encoder=line)
    stream = wallaroo.source("In", source).to_sink(sink)
    options = RunOptions(checkpoint=place.url, status_address=None, ack_ports=(("In", 0),))
    run = Run(wallaroo.build_application("acked", stream), options, InProcessHost())
    run.start()
    try:
        port = run._spec.feeders.ack_addresses["In"][1]
        payloads = of_payloads([b"%d" % number for number in range(50)])

        send_acknowledged(("127.0.0.1", port), "numbers", payloads)

        last = CommitLog(LocalStorage(str(run.root), is_durable=False)).last()
        assert last is not None
        assert last.offsets["In"][1] == 50
    finally:
        run.stop()
        run.wait()
    assert run.exception is None


def test_the_campaign_s_drivers_contend(tmp_path: Path) -> None:
    """One round with a folder, and one with a store."""
    figures = tmp_path / "figures.jsonl"
    for options in (["--folder", "--started", "1"], ["--stopped", "1", "--seconds", "0"]):
        command = [sys.executable, "-m", "tests.stores.campaign", *options, "--json", str(figures)]
        subprocess.run(command, check=True, timeout=400)

    folder, store = map(json.loads, figures.read_text().splitlines())
    assert sum(folder["two started"].values()) == 1
    assert store["stopped"] == {"ended with 4": 1}
