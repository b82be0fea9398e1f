"""What benchmarks feed applications with: frames, pre-filled spools, senders, and a receiver.

Where it runs: the benchmark's process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import wallaroo
from benchmarks.lib.machine import BenchmarkError
from wallaroo.spool.format import folder_of
from wallaroo.spool.writer import SpoolWriter

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
APPLICATIONS = ROOT / "benchmarks" / "applications"
HOST = "127.0.0.1"
CHUNK_BYTES = 64 * 1024  # what the ingress appends under load: about one read of a socket
RECEIPT_STEP_NS = 1_000  # between two messages, in a spool that no ingress wrote
STOP_S_MAX = 60.0
ORDERS, QUOTES = "Orders", "Market Data"


@dataclass(frozen=True, slots=True)
class Frames:
    """Whole frames, and where each chunk of them ends: ``(byte, events)`` from the beginning."""

    content: bytes
    ends: tuple[tuple[int, int], ...]

    @property
    def events(self) -> int:
        """How many messages there are."""
        return self.ends[-1][1] if self.ends else 0

    @classmethod
    def of_equal(cls, content: bytes, frame_bytes: int, chunk_bytes: int = CHUNK_BYTES) -> Frames:
        """Frames that all have the same length."""
        step = max(1, chunk_bytes // frame_bytes)
        total = len(content) // frame_bytes
        counts = [min(at + step, total) for at in range(0, total, step)]
        return cls(content, tuple((count * frame_bytes, count) for count in counts))

    @classmethod
    def of_payloads(cls, payloads: Sequence[bytes], chunk_bytes: int = CHUNK_BYTES) -> Frames:
        """Frame payloads with a 4-byte header, big-endian."""
        content, ends, begun = bytearray(), list[tuple[int, int]](), 0
        for count, payload in enumerate(payloads, 1):
            content += len(payload).to_bytes(4, "big") + payload
            if len(content) - begun >= chunk_bytes or count == len(payloads):
                ends.append((len(content), count))
                begun = len(content)
        return cls(bytes(content), tuple(ends))


def prepare() -> None:
    """Let every process that is started from here find wallaroo, the benchmarks and the
    examples.
    """
    found = [str(Path(wallaroo.__file__).parents[1]), str(ROOT), *module_folders()]
    sys.path[:] = [*(path for path in found if path not in sys.path), *sys.path]
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (*found, os.environ.get("PYTHONPATH", "")))
    )


def module_folders() -> tuple[str, ...]:
    """Where the applications' modules are."""
    return (
        str(APPLICATIONS),
        *(str(folder) for folder in sorted(EXAMPLES.iterdir()) if folder.is_dir()),
    )


def fill_spool(root: Path, source: str, frames: Frames, events: int) -> None:
    """Append ``events`` messages (repeating ``frames``) to a source's spool below the checkpoint
    ``root``.
    """
    writer = SpoolWriter(folder_of(root / "spool", source), is_durable=False)
    view, receipt_ns, left = memoryview(frames.content), time.time_ns(), events
    try:
        while left > 0:
            byte = count = 0
            for end_byte, end_count in frames.ends:
                if left <= 0:
                    break
                receipt_ns += (end_count - count) * RECEIPT_STEP_NS
                writer.append(view[byte:end_byte], end_count - count, receipt_ns)
                left -= end_count - count
                byte, count = end_byte, end_count
        writer.publish()
    finally:
        writer.close()


def market_frames() -> tuple[bytes, bytes]:
    """A block of orders and a block of quotes, made as the demo makes them; to be repeated."""
    from market_spread_data import Market  # found by prepare()

    opening = (EXAMPLES / "market_spread" / "350_symbols_initial_nbbo.msg").read_bytes()
    market = Market.of(opening)
    return bytes(next(market.order_blocks())), opening + bytes(next(market.quote_blocks()))


@contextmanager
def scratch(parent: Path | None) -> Iterator[Path]:
    """A folder that goes away afterwards."""
    with tempfile.TemporaryDirectory(
        prefix="wallaroo-bench-", dir=parent, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


@contextmanager
def receiver() -> Iterator[int]:
    """A process that reads the application's output; gives its port."""
    command = [sys.executable, "-m", "benchmarks.lib.output_reader"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as drain:
        try:
            assert drain.stdout is not None
            yield int(drain.stdout.readline())
        finally:
            drain.terminate()


@contextmanager
def senders(
    files: Sequence[tuple[Path, int]], rate: float, seconds: float
) -> Iterator[list[subprocess.Popen[str]]]:
    """One `wallaroo send` for each (file of frames, port): together ``rate`` messages a second for
    ``seconds``.
    """
    started = []
    for path, port in files:
        command = [
            sys.executable,
            "-m",
            "wallaroo",
            "send",
            "--to",
            f"{HOST}:{port}",
            "--file",
            str(path),
            "--form",
            "frames",
        ]
        command += ["--rate", str(rate / len(files)), "--repeat", "0", "--duration", str(seconds)]
        started.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    try:
        yield started
    finally:
        for sender in started:
            if sender.poll() is None:
                sender.terminate()
            sender.wait(STOP_S_MAX)


def said(sender: subprocess.Popen[str]) -> str:
    """What a sender that has ended printed.  Raises BenchmarkError where it failed."""
    out, _ = sender.communicate(timeout=STOP_S_MAX)
    if sender.returncode != 0:
        raise BenchmarkError(
            f"`wallaroo send` ended with exit code {sender.returncode}: {out.strip()}"
        )
    return out.strip()
