"""Sink configurations: what users may write, and that they travel."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.connectors.file.sink import FileSinkConfig
from wallaroo.connectors.stdout.sink import StdoutSinkConfig
from wallaroo.connectors.tcp.sink import TCPSinkConfig
from wallaroo.errors import WallarooParameterError
from wallaroo.sinks.interface import SinkConfig, SinkStatus, WriteContext
from wallaroo.sinks.staging import StagedWriter

CONFIGS = [TCPSinkConfig("127.0.0.1", 7002), FileSinkConfig("out"), StdoutSinkConfig()]


@pytest.mark.parametrize("config", CONFIGS)
def test_a_configuration_travels(config: SinkConfig) -> None:
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize("config", CONFIGS)
def test_a_sink_that_stages_as_we_do_says_so(config: SinkConfig, tmp_path: Path) -> None:
    """Its output may then be staged before its batch's turn."""
    writer = config.writer(WriteContext("s", 0, 0, "a", tmp_path, False))
    assert isinstance(writer, StagedWriter)
    assert config.has_staged_tokens


def test_a_port_may_be_text_as_the_command_line_helper_gives_it() -> None:
    assert TCPSinkConfig("127.0.0.1", "7002") == TCPSinkConfig("127.0.0.1", 7002)
    assert TCPSinkConfig("127.0.0.1", "7002").label == "tcp 127.0.0.1:7002"


@pytest.mark.parametrize("port", ["", "http", 0, 65536, None])
def test_what_is_no_port_is_refused_with_the_fix(port: object) -> None:
    with pytest.raises(WallarooParameterError, match="Give a number from 1 to 65535"):
        TCPSinkConfig("127.0.0.1", port)  # type: ignore[arg-type]  # the mistake under test


def test_stdout_prints_a_batch_when_it_commits_and_never_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = StdoutSinkConfig()
    committer = config.committer("s", tmp_path, False)
    committer.recover(history_to(), ())
    writer = config.writer(WriteContext("s", 0, 0, "a", tmp_path, False))
    writer.write([b"one", b"two\n", "größer".encode()])
    tokens = [writer.prepare(), None]
    assert capsys.readouterr().out == ""
    committer.commit(commit_of(0), tokens)
    committer.commit(commit_of(0), tokens)
    assert capsys.readouterr().out == "one\ntwo\ngrößer\n"
    assert (committer.status().outputs, committer.status().committed_batch) == (3, 0)


def test_a_status_keeps_the_last_64_batches_and_a_copy_stays_as_it_was() -> None:
    status = SinkStatus()
    for batch in range(100):
        status.note_sent(batch, batch)
    copy = status.copy()
    status.note_sent(100, 100)
    assert sorted(copy.sent_at_ns) == list(range(36, 100))
