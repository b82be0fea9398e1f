"""The batches of a run without input, whose windows end one after the other."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

import wallaroo
from wallaroo.aggregations import Count
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run

KEYS = 31
SPACING_S = 0.02  # between the ends of two keys' sessions
GAP_NS = wallaroo.milliseconds(300)
MORE = 3  # batches: a partition becomes idle
QUIET_S = 0.5

Eventually = Callable[..., None]


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(payload: bytes) -> tuple[str, float]:
    key, at = payload.decode().split()
    return key, float(at)


@wallaroo.key_extractor
def key(event: tuple[str, float]) -> str:
    return event[0]


@wallaroo.encoder
def encode(count: int) -> str:
    return f"{count}\n"


def sessions(out: Path) -> wallaroo.Application:
    source = wallaroo.TCPSourceConfig("in", "127.0.0.1", "0", decode)
    ended = (
        wallaroo.source("in", source)
        .with_event_time(lambda event: event[1], idle_after=wallaroo.milliseconds(400))
        .key_by(key)
        .to(wallaroo.session_windows(GAP_NS).over(Count()))
    )
    return wallaroo.build_application("idle", ended.to_sink(wallaroo.FileSinkConfig(out, encode)))


def test_an_idle_run_has_at_most_one_batch_for_each_session_that_ends_and_then_none(
    tmp_path: Path, eventually: Eventually
) -> None:
    out = tmp_path / "out.txt"
    options = RunOptions(checkpoint=tmp_path / "state", status_address=None)
    run = Run(sessions(out), options, InProcessHost(2))
    run.start()
    try:
        with socket.create_connection(run.addresses["in"]) as client:
            began = time.time()
            payloads = [f"{k} {began + k * SPACING_S}".encode() for k in range(KEYS)]
            client.sendall(b"".join(struct.pack(">I", len(p)) + p for p in payloads))
            eventually(lambda: run.status().events_done == KEYS, "all events are in")
            before = run.status().batches
            eventually(lambda: out.read_bytes() == b"1\n" * KEYS, "all sessions have ended")
            after = run.status().batches
            time.sleep(QUIET_S)
            assert run.status().batches - after <= 1  # the one whose output was seen
            assert after - before <= KEYS + MORE
    finally:
        run.stop()
        assert run.wait(400)
    assert run.exception is None
