"""``wallaroo state`` beside a running application: what it shows is the state after one batch, in
full, while batches continue.  Batches are run without Spark, which knows nothing of checkpoints.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from wallaroo.cli.receive.receiver import Receiver
from wallaroo.protocols.framing import Framing, framer
from wallaroo.spark.local_cluster.hosts import free_ports
from wallaroo.state.log.storage import LocalStorage

SOURCES = str(Path(__file__).resolve().parents[2] / "src")
RETAIN = 24
BATCHES = 70  # every key group has had its snapshot by then, so deltas are being deleted
ROUNDS = 3  # of looking, spread over these batches
LINES_PER_SEND, SEND_EVERY_S = 20, 0.05
LIMIT_S = 400.0  # a busy machine must not reach it

Counts = Counter[str]
Command = Callable[..., tuple[int, str, str]]


@dataclass
class Sender:
    """Random words over one connection, at a steady rate; ``lines`` is all that was sent, in
    order.
    """

    port: int
    lines: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._is_stopping = threading.Event()
        self._may_send = threading.Event()
        self._may_send.set()
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hold(self, is_held: bool) -> None:
        """Send nothing, or continue."""
        (self._may_send.clear if is_held else self._may_send.set)()

    def stop(self) -> None:
        self._is_stopping.set()
        self._thread.join(LIMIT_S)

    def _run(self) -> None:
        chance, frame = Random(11), framer(Framing(4, ">I", 1 << 20))
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            while not self._is_stopping.wait(SEND_EVERY_S):
                if not self._may_send.is_set():
                    continue
                made = [
                    [_word(chance) for _ in range(chance.randrange(1, 4))]
                    for _ in range(LINES_PER_SEND)
                ]
                self.lines += made  # before they can be in any commit
                connection.sendall(b"".join(frame(" ".join(words).encode()) for words in made))

    @property
    def words(self) -> int:
        """How many words were sent."""
        return sum(map(len, list(self.lines)))

    def after(self, words: int) -> Counts:
        """The counts when so many words had been seen; there must be a line that ends there."""
        counts: Counts = Counter()
        for line in self.lines:
            if words <= 0:
                break
            counts.update(line)
            words -= len(line)
        assert words == 0, "no line ends there: the state is not that of a batch boundary"
        return counts


def _word(chance: Random) -> str:
    return f"w{int(500 * chance.random() ** 2)}"


def counts_of(outputs: list[bytes]) -> Counts:
    """The newest count of every word that came out."""
    counts: Counts = Counter()
    for line in outputs:
        word, _, number = line.decode().partition(" ")
        assert int(number) == counts[word] + 1
        counts[word] = int(number)
    return counts


def exported(text: str) -> Counts:
    return Counter(
        {entry["key"]: entry["value"]["count"] for entry in map(json.loads, text.splitlines())}
    )


@contextmanager
def running(folder: Path, port: int, out_port: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "wallaroo.cli.in_process", "--no-live"]
    command += ["--checkpoint", str(folder / "state"), "--retain-commits", str(RETAIN)]
    command += ["tests.verification.applications.word_count"]
    command += ["--in", f"Lines@127.0.0.1:{port}", "--out", f"127.0.0.1:{out_port}"]
    with (folder / "log").open("wb") as log:
        environment = {**os.environ, "PYTHONPATH": SOURCES}
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    try:
        yield process
    except BaseException:
        print((folder / "log").read_text())
        raise
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(LIMIT_S)


class Looks:
    """``wallaroo state`` on the checkpoint of the run, from another process than the run's."""

    def __init__(self, wallaroo: Command, folder: Path):
        self._wallaroo = wallaroo
        self._folder = folder

    def __call__(self, verb: str, *arguments: object) -> str:
        """What it prints."""
        checkpoint = ("--checkpoint", self._folder / "state")
        code, out, err = self._wallaroo("state", verb, *checkpoint, *arguments)
        assert code == 0, err
        return out

    def counts(self, *arguments: object) -> Counts:
        """All words' counts."""
        return exported(self("export", "--json", *arguments))


def newest(folder: Path) -> int:
    names = LocalStorage(str(folder / "state"), False).names("commits")
    return int(names[-1].partition(".")[0]) if names else -1


def changes_of(text: str) -> dict[str, tuple[int, int]]:
    """The counts of every changed word, old and new."""
    found = {}
    for sign, word, shown in re.findall(r"^([+~]) 'count' '(\w+)'  (.*)$", text, re.MULTILINE):
        numbers = [int(number) for number in re.findall(r"\d+", shown)]
        found[word] = (0, numbers[0]) if sign == "+" else (numbers[0], numbers[1])
    return found


def received(receiver: Receiver) -> int:
    """How many lines came so far, each with one word."""
    return sum(payload.count(b"\n") for payload in list(receiver.payloads))


def lines_of(receiver: Receiver) -> list[bytes]:
    """The whole lines that came so far."""
    return b"".join(list(receiver.payloads)).split(b"\n")[:-1]


def test_state_is_read_at_batch_boundaries_while_the_application_runs(
    tmp_path: Path, wallaroo: Command, eventually: Callable[..., None]
) -> None:
    """list, export, get and diff agree with the input up to that boundary, and are never behind
    what has come out.
    """
    (port,) = free_ports(1)
    looks = Looks(wallaroo, tmp_path)
    with (
        Receiver(is_resuming=True) as receiver,
        running(tmp_path, port, receiver.address[1]) as run,
    ):
        eventually(lambda: run.poll() is not None or _listens(port), "the application listens")
        sender = Sender(port)
        sender.start()
        for number in range(ROUNDS):
            due = 1 + number * BATCHES // (ROUNDS - 1)
            eventually(lambda due=due: newest(tmp_path) >= due, "batches are committed")
            came = counts_of(lines_of(receiver))

            listed = int(re.findall(r"^commit (\d+)", looks("list"))[0])
            found = looks.counts()

            assert listed >= due
            assert found == sender.after(found.total())
            assert all(found[word] >= count for word, count in came.items()), (
                "the state is behind the output"
            )
            _check_get(looks, sender, found)
        sender.hold(True)
        eventually(lambda: received(receiver) >= sender.words, "what was sent comes out")
        _check_diff(looks, newest(tmp_path))
        sender.hold(False)
        sender.stop()
        eventually(lambda: received(receiver) >= sender.words, "all comes out")
        run.send_signal(signal.SIGTERM)
        assert run.wait(LIMIT_S) == 0
    assert looks.counts() == counts_of(lines_of(receiver)) == sender.after(sender.words)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _check_get(looks: Looks, sender: Sender, before: Counts) -> None:
    """One key's state: no older than the export before it, no newer than what was sent."""
    word = before.most_common(1)[0][0]
    (count,) = map(int, re.findall(r"^ +count +(\d+)$", looks("get", word), re.MULTILINE))
    assert before[word] <= count <= sum(line.count(word) for line in list(sender.lines))


def _check_diff(looks: Looks, end: int) -> None:
    """What changed between two commits is what their exports differ in.  No batch is under way:
    the older one would soon be forgotten.
    """
    start = end - RETAIN // 2
    shown = changes_of(looks("diff", "--from", start, "--to", end))
    old = looks.counts("--commit", start)
    new = looks.counts("--commit", end)
    assert shown == {word: (old[word], new[word]) for word in new if new[word] != old[word]}
    assert shown
