"""Processes that begin where everything is imported already: forks of a process that imported it.

Tests that kill the same small program again and again wait for its imports most of the time.  The
processes are real ones, with an environment of their own, and die as others do.

``python -m tests.forks MODULE`` imports MODULE and runs ``MODULE.main(*arguments)``, which may
return an exit code, in a fork for each order on stdin, one after the other; ``Forks`` gives the
orders.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCES = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
RUN_S_MAX = 400  # ends what hangs, as SIGALRM


class Parent:
    """A process that has imported ``module``."""

    def __init__(self, module: str):
        environment = {**os.environ, "PYTHONPATH": SOURCES}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forks", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=ROOT,
            env=environment,
        )

    def run(self, arguments: tuple[str, ...], environment: dict[str, str]) -> tuple[int, str]:
        """Fork; return the exit code, as of ``subprocess``, and what the fork wrote to stdout."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([arguments, environment]) + "\n")
        code, output = json.loads(self._process.stdout.readline())
        return code, output

    def close(self) -> None:
        self._process.communicate()


class Forks:
    """Runs of one program, as many at once as there are parents."""

    def __init__(self, parents: list[Parent]):
        self._free: SimpleQueue[Parent] = SimpleQueue()
        for parent in parents:
            self._free.put(parent)

    def run(self, *arguments: object, **environment: str) -> tuple[int, str]:
        """Run the program in a fork; return its exit code, negative for a signal, and output."""
        parent = self._free.get()
        try:
            return parent.run(tuple(map(str, arguments)), environment)
        finally:
            self._free.put(parent)


@contextlib.contextmanager
def forks_of(module: str, at_once: int = 1) -> Iterator[Forks]:
    """Import ``module`` in as many processes as forks of it run at once."""
    with contextlib.ExitStack() as stack:
        parents = []
        for _ in range(at_once):
            parents.append(parent := Parent(module))
            stack.callback(parent.close)
        yield Forks(parents)


def serve(module: Any) -> None:
    """Run a fork for each order; what one of them imported late is there for the next ones."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin:
        arguments, environment = json.loads(line)
        (reading, writing), (receiving, reporting) = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            os.close(receiving)
            _live(module, arguments, environment, writing, reporting)
        os.close(writing)
        os.close(reporting)
        with os.fdopen(reading, "rb") as output, os.fdopen(receiving, "rb") as late:
            written = output.read()  # to the end of all that have it open
            for name in late.read().decode().split():
                importlib.import_module(name)
        _, status = os.waitpid(pid, 0)
        answers.write(json.dumps([os.waitstatus_to_exitcode(status), written.decode()]) + "\n")


def _live(
    module: Any, arguments: list[str], environment: dict[str, str], stdout: int, late: int
) -> None:
    """Be the fork: from here to its end."""
    code = 1
    known = set(sys.modules)
    try:
        signal.alarm(RUN_S_MAX)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(stdout, 1)
        os.close(stdout)
        os.environ.update(environment)
        _choose_faults()
        ended = module.main(*arguments) or 0
        ours = [name for name in sys.modules if name not in known and name.startswith("wallaroo.")]
        os.write(late, " ".join(ours).encode())
        code = ended
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _choose_faults() -> None:
    """Have this process pass the fault points that its environment says, as if it imported them
    now.
    """
    from wallaroo.instrumentation import faults

    none, chosen = faults.fault_point, faults._choose(os.environ)
    for module in list(sys.modules.values()):
        if getattr(module, "fault_point", None) is none:
            module.fault_point = chosen  # type: ignore[attr-defined]


if __name__ == "__main__":
    serve(importlib.import_module(sys.argv[1]))
