"""Output goes to the sink that it was committed for, whatever becomes of the others' places."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from tests.unit.runtime.applications import line, text, until
from wallaroo.errors import CheckpointError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run


class Receiver:
    """A port that refuses connections until it is `opened`, and what came to it then."""

    def __init__(self) -> None:
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lines = b""

    @property
    def lines(self) -> list[str]:
        return self._lines.decode().splitlines()

    def open(self) -> None:
        self._listener.listen()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    while piece := connection.recv(1 << 16):
                        self._lines += piece

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def receivers() -> Iterator[tuple[Receiver, Receiver]]:
    both = Receiver(), Receiver()
    yield both
    for receiver in both:
        receiver.close()


def pipeline(folder: Path, name: str, sink: Any) -> Any:
    """Copy the lines ``NAME:0`` and ``NAME:1`` to a sink."""
    (folder / f"{name}.txt").write_text(f"{name}:0\n{name}:1\n")
    path = str(folder / f"{name}.txt")
    return wallaroo.source(name, wallaroo.FileSourceConfig(name, path, text)).to_sink(sink)


def tcp(receiver: Receiver, **options: Any) -> wallaroo.TCPSinkConfig:
    return wallaroo.TCPSinkConfig("127.0.0.1", receiver.port, line, **options)


def run_of(folder: Path, *pipelines: Any, **options: Any) -> Run:
    application = wallaroo.build_application("app", *pipelines)
    chosen = RunOptions(checkpoint=folder / "state", status_address=None, drain_s=0.0, **options)
    return Run(application, chosen, InProcessHost())


def pending(run: Run) -> list[int]:
    return [sink.pending_bytes for sink in run.status().sinks]


def leave_waiting(run: Run, sinks: int = 2) -> None:
    """Process all input while receivers are absent, and stop."""
    run.start()
    until(lambda: pending(run) == [8] * sinks)
    run.stop()
    assert run.wait(400)
    assert run.exception is None


def finish(run: Run) -> None:
    run.start()
    assert run.wait(400)
    assert (run.exception, run.status().state) == (None, "finished")


def plan_of(folder: Path) -> Any:
    return json.loads((folder / "state" / "plan.json").read_text())


def test_pipelines_in_another_order_send_what_waits_to_its_own_receiver(
    tmp_path: Path, receivers: tuple[Receiver, Receiver]
) -> None:
    a, b = receivers
    leave_waiting(
        run_of(tmp_path, pipeline(tmp_path, "a", tcp(a)), pipeline(tmp_path, "b", tcp(b)))
    )
    a.open()
    b.open()
    finish(run_of(tmp_path, pipeline(tmp_path, "b", tcp(b)), pipeline(tmp_path, "a", tcp(a))))
    until(lambda: len(a.lines) == len(b.lines) == 2)
    assert (a.lines, b.lines) == (["a:0", "a:1"], ["b:0", "b:1"])


def test_a_sink_that_is_inserted_gets_nothing_of_the_others(
    tmp_path: Path, receivers: tuple[Receiver, Receiver]
) -> None:
    a, b = receivers
    leave_waiting(run_of(tmp_path, pipeline(tmp_path, "a", tcp(a))), sinks=1)
    a.open()
    b.open()
    finish(run_of(tmp_path, pipeline(tmp_path, "b", tcp(b)), pipeline(tmp_path, "a", tcp(a))))
    until(lambda: len(a.lines) == len(b.lines) == 2)
    assert (a.lines, b.lines) == (["a:0", "a:1"], ["b:0", "b:1"])


def test_an_older_checkpoint_without_addresses_goes_on_with_the_sinks_in_their_places(
    tmp_path: Path, receivers: tuple[Receiver, Receiver]
) -> None:
    """Versions without names of sinks noted ``tcp`` and ``tcp-2``, and no address."""
    a, b = receivers
    ends = (
        pipeline(tmp_path, "a", tcp(a, name="tcp")),
        pipeline(tmp_path, "b", tcp(b, name="tcp-2")),
    )
    leave_waiting(run_of(tmp_path, *ends))
    older = plan_of(tmp_path)
    del older["crc32"]  # which they wrote none of, either
    older["sinks"] = {"tcp": {"kind": "tcp"}, "tcp-2": {"kind": "tcp"}}
    (tmp_path / "state" / "plan.json").write_text(json.dumps(older))
    a.open()
    b.open()
    finish(run_of(tmp_path, pipeline(tmp_path, "a", tcp(a)), pipeline(tmp_path, "b", tcp(b))))
    until(lambda: len(a.lines) == len(b.lines) == 2)
    assert (a.lines, b.lines) == (["a:0", "a:1"], ["b:0", "b:1"])
    assert sorted(plan_of(tmp_path)["sinks"]) == ["tcp", "tcp-2"]


def test_a_sink_without_a_name_that_moved_is_refused_while_output_waits_for_it(
    tmp_path: Path, receivers: tuple[Receiver, Receiver]
) -> None:
    a, b = receivers
    leave_waiting(run_of(tmp_path, pipeline(tmp_path, "a", tcp(a))), sinks=1)
    before = plan_of(tmp_path)
    b.open()
    with pytest.raises(
        CheckpointError,
        match=rf"(?s)Sink 'tcp' \(127.0.0.1:{a.port}\) is gone, and output committed to it may not "
        r"have left yet\. If it was moved, name it: name='tcp'",
    ):
        run_of(tmp_path, pipeline(tmp_path, "a", tcp(b))).start()
    assert plan_of(tmp_path) == before

    finish(run_of(tmp_path, pipeline(tmp_path, "a", tcp(b, name="tcp"))))
    until(lambda: len(b.lines) == 2)
    assert b.lines == ["a:0", "a:1"]


def test_a_sink_with_a_name_takes_what_waits_along_when_it_moves(
    tmp_path: Path, receivers: tuple[Receiver, Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    a, b = receivers
    leave_waiting(run_of(tmp_path, pipeline(tmp_path, "a", tcp(a, name="orders"))), sinks=1)
    b.open()
    finish(run_of(tmp_path, pipeline(tmp_path, "a", tcp(b, name="orders"))))
    until(lambda: len(b.lines) == 2)
    assert b.lines == ["a:0", "a:1"]
    assert (
        f"Sink 'orders' wrote to 127.0.0.1:{a.port} and writes to 127.0.0.1:{b.port} now"
        in caplog.text
    )
    assert (tmp_path / "state" / "outbox" / "orders").is_dir()


def test_what_waits_for_a_sink_that_was_given_up_goes_to_no_other(
    tmp_path: Path, receivers: tuple[Receiver, Receiver]
) -> None:
    a, b = receivers
    leave_waiting(run_of(tmp_path, pipeline(tmp_path, "a", tcp(a))), sinks=1)
    b.open()
    finish(run_of(tmp_path, pipeline(tmp_path, "a", tcp(b)), allow_incompatible=True))
    assert b.lines == []
    assert plan_of(tmp_path)["gone"] == {
        "tcp": {"kind": "tcp", "target": f"127.0.0.1:{a.port}", "address": ""}
    }


def to_file(path: Path, **options: Any) -> wallaroo.FileSinkConfig:
    return wallaroo.FileSinkConfig(path, line, **options)


def test_file_sinks_may_change_places_and_be_inserted(tmp_path: Path) -> None:
    def end(name: str) -> Any:
        return pipeline(tmp_path, name, to_file(tmp_path / f"{name}.out.txt"))

    finish(run_of(tmp_path, end("a"), end("b")))
    finish(run_of(tmp_path, end("c"), end("b"), end("a")))
    contents = [(tmp_path / f"{name}.out.txt").read_text() for name in "abc"]
    assert contents == [f"{name}:0\n{name}:1\n" for name in "abc"]


def test_a_file_sink_that_has_written_everything_may_go_to_another_path(tmp_path: Path) -> None:
    finish(run_of(tmp_path, pipeline(tmp_path, "a", to_file(tmp_path / "one.txt"))))
    (tmp_path / "a.txt").open("a").write("a:2\n")
    source = wallaroo.FileSourceConfig("a", str(tmp_path / "a.txt"), text)
    end = wallaroo.source("a", source).to_sink(to_file(tmp_path / "two.txt"))
    finish(run_of(tmp_path, end))
    assert (tmp_path / "two.txt").read_text() == "a:2\n"


def test_a_start_says_how_much_output_waits(
    tmp_path: Path, receivers: tuple[Receiver, Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    """Given 16 bytes for two absent receivers, then the log of the next start has them."""
    a, b = receivers
    ends = pipeline(tmp_path, "a", tcp(a)), pipeline(tmp_path, "b", tcp(b))
    leave_waiting(run_of(tmp_path, *ends))
    caplog.set_level(logging.INFO, "wallaroo")
    again = run_of(tmp_path, *ends)
    again.start()
    again.stop()
    assert again.wait(400)
    assert "16 bytes of committed output wait to be sent" in caplog.text
