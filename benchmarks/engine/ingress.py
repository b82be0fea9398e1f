"""How much the ingress takes by itself: sender -> TCP -> ingress -> spool, consumed at once by a
tail that follows the head.

Run: ``python benchmarks/engine/ingress.py [--seconds 3] [--runs 3] [--payload-bytes 50]
[--durable]``.  Prints the machine, and medians of messages per second and of CPU time per
message of the ingress and of the sender, for messages of one length and of varying lengths.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from wallaroo.cli.send.sending import of_payloads
from wallaroo.connectors.tcp.source import TCPSourceConfig
from wallaroo.ingress.process import Feeders, Feeding
from wallaroo.spool import SpoolReader, folder_of, write_tail
from wallaroo.steps.kinds import Decoder

MESSAGES = 200_000  # in the file that is sent over and over
SENDER = """
import resource, sys
from pathlib import Path
from wallaroo.cli.send.sending import SendOptions, of_frames, send
host, port, path, seconds = sys.argv[1:]
found = of_frames(Path(path).read_bytes())
before = resource.getrusage(resource.RUSAGE_SELF)
sent = send([(host, int(port))], lambda: [found], SendOptions(repeat=0, duration_s=float(seconds)))
after = resource.getrusage(resource.RUSAGE_SELF)
print(sent.messages, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
"""
decoder: Decoder[bytes] = Decoder(bytes, "bytes")


def cpu_s(pid: int) -> float:
    """Return the CPU time a process has used (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(path: Path, seconds: float, is_durable: bool) -> tuple[float, float, float]:
    """Send for some seconds; return messages/s and CPU us per message of ingress and sender."""
    with tempfile.TemporaryDirectory() as folder:
        feeders = Feeders()
        source = TCPSourceConfig("In", "127.0.0.1", 0, decoder)
        host, port = feeders.start([source], Path(folder), Feeding(is_durable=is_durable))["In"]
        reader, pid = SpoolReader(folder_of(Path(folder), "In")), feeders.pids["ingress"]
        before, began = cpu_s(pid), time.monotonic()
        command = [sys.executable, "-c", SENDER, host, str(port), str(path), str(seconds)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sender:
            first_at = 0.0
            while sender.poll() is None:
                time.sleep(0.02)
                head = reader.head().position
                first_at = first_at or (time.monotonic() if head.events else 0.0)
                write_tail(reader.folder, head)
            assert sender.stdout is not None
            messages, sender_cpu_s = sender.stdout.read().split()
        while reader.head().position.events < int(messages):
            time.sleep(0.002)
        elapsed, cpu = time.monotonic() - (first_at or began), cpu_s(pid) - before
        feeders.stop()
    count = int(messages)
    return count / elapsed, cpu / count * 1e6, float(sender_cpu_s) / count * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--payload-bytes", type=int, default=50)
    parser.add_argument("--durable", action="store_true")
    args = parser.parse_args()
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        f"{platform.system()}"
    )
    rng = random.Random(1)
    lengths = {
        f"{args.payload_bytes} bytes each": [args.payload_bytes] * MESSAGES,
        f"1 to {2 * args.payload_bytes - 1} bytes": [
            rng.randrange(1, 2 * args.payload_bytes) for _ in range(MESSAGES)
        ],
    }
    for name, sizes in lengths.items():
        with tempfile.NamedTemporaryFile() as file:
            Path(file.name).write_bytes(of_payloads([b"x" * size for size in sizes]).content)
            results = [run(Path(file.name), args.seconds, args.durable) for _ in range(args.runs)]
        rate, ingress_us, sender_us = (
            statistics.median(column) for column in zip(*results, strict=True)
        )
        words = "durable" if args.durable else "not durable"
        print(
            f"{name}, {words}: {rate:,.0f} messages/s, CPU per message: ingress {ingress_us:.3f} "
            f"us, sender {sender_us:.3f} us"
        )


if __name__ == "__main__":
    main()
