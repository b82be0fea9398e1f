"""Runs and commands with which ingresses of other hosts do not go together."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import wallaroo
from tests.ingresses.joined_driver import application_of, decode, encode, stream_of, time_of
from wallaroo.api.application import Application
from wallaroo.cli.main import main
from wallaroo.errors import CheckpointError, PeerError, PipelineError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.spool.welcomed import WelcomedHosts
from wallaroo.state.log.layout import SPOOL

LISTEN = ("127.0.0.1", 0)


class Last:
    pass


@wallaroo.state_computation(name="until", state=Last, ttl=timedelta(seconds=5), ttl_time="event")
def until(event: str, state: Last) -> str:
    return event


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"checkpoint": None}, "Give a checkpoint, too"),
        ({"until_now": True}, "does not end with until-now"),
        (
            {"durability": "replicated", "replica": ("127.0.0.1", 1), "replica_key": "key"},
            "is not in a replica's copy",
        ),
        ({"ingress_listen": ("10.0.0.1", 7300)}, "the connection is not encrypted"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    tmp_path: Path, options: dict[str, object], words: str
) -> None:
    given = {"checkpoint": tmp_path, "ingress_listen": LISTEN, **options}
    with pytest.raises(ValueError, match=words):
        RunOptions(**given)  # type: ignore[arg-type]


def started(application: Application, folder: Path, listen: tuple[str, int] | None = LISTEN) -> Run:
    options = RunOptions(checkpoint=folder, ingress_listen=listen, status_address=None)
    return Run(application, options, InProcessHost())


def test_an_application_without_a_tcp_source_is_refused(tmp_path: Path) -> None:
    source = wallaroo.source("in", wallaroo.FileSourceConfig("in", tmp_path / "in.txt"))
    sink = wallaroo.FileSinkConfig(tmp_path / "out.txt", encode)
    run = started(wallaroo.build_application("files", source.to_sink(sink)), tmp_path / "check")
    with pytest.raises(PipelineError, match="no TCP source"):
        run.start()


def test_steps_that_need_one_order_are_refused(tmp_path: Path) -> None:
    source = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", 0, decode))
    sink = wallaroo.FileSinkConfig(tmp_path / "out.txt", encode)
    timed = source.with_event_time(time_of).key_by(stream_of).to(until)
    run = started(wallaroo.build_application("timed", timed.to_sink(sink)), tmp_path / "check")
    with pytest.raises(PipelineError, match=r"has no single order"):
        run.start()


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    first = started(application_of(tmp_path, has_windows=False), tmp_path / "check")
    first.start()
    port = first.addresses["in"][1]
    second = started(
        application_of(tmp_path, has_windows=False), tmp_path / "other", ("127.0.0.1", port)
    )
    with pytest.raises(PeerError, match=f"ingresses cannot join at 127.0.0.1:{port}: Address"):
        second.start()
    first.stop()
    first.wait()


def test_a_run_without_the_option_leaves_no_ingress_behind_that_no_commit_lists(
    tmp_path: Path,
) -> None:
    """It was let in by a run that ended before its first commit."""
    application = application_of(tmp_path, has_windows=False)
    run = started(application, tmp_path / "check")
    run.start()
    run.stop()
    run.wait()
    WelcomedHosts(tmp_path / "check" / SPOOL).add("edge/0011223344556677")
    with pytest.raises(CheckpointError, match="ingress 'edge' on another host may have"):
        started(application, tmp_path / "check", None).start()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "FOLDER is needed"),
        (["folder", "--lost", "edge"], "FOLDER is needed"),
        (["folder", "--name", "a/b"], "is not a name"),
    ],
)
def test_a_command_line_that_cannot_be_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["ingress", "--join", "127.0.0.1:1", "--key", "key", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_key_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = tmp_path / "ingress.key"
    command = ["ingress", "--join", "127.0.0.1:1", "--key", str(key), str(tmp_path / "folder")]
    assert main(command) == 1
    assert "cannot be read: No such file" in capsys.readouterr().err
    key.write_text("no key")
    assert main(command) == 1
    assert "is not a key file" in capsys.readouterr().err


def test_a_folder_of_something_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "ingress.key"
    key.write_text('{"secret": "00", "certificate": ""}')
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "novel.txt").write_text("mine")
    command = ["ingress", "--join", "127.0.0.1:1", "--key", str(key), str(folder)]
    assert main(command) == 1
    assert "holds novel.txt and no ingress.json" in capsys.readouterr().err
