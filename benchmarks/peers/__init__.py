"""The same jobs in other engines, each in a Python of its own: no dependency of the package.

``scripts/setup-peers`` makes these Pythons in ``.peers/``, as `make bench` has it done; benchmarks
that have a peer find it there.

Where it runs: benchmarks, which start the programs beside this file.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

from benchmarks.lib.machine import BenchmarkError

ROOT = Path(__file__).resolve().parents[2]  # where peers are started, too
TITLES = {"bytewax": "Bytewax", "quix": "Quix Streams", "flink": "Apache Flink"}


def python(name: str, root: Path = ROOT) -> str | None:
    """The Python in which a peer is installed, as a path from the project's folder; None where it
    is not.
    """
    place = Path(".peers", name, "bin", "python")
    return str(place) if (root / place).exists() else None


def add_options(parser: argparse.ArgumentParser, *names: str, root: Path = ROOT) -> None:
    """An option for each peer that names its Python: by default the one in ``.peers/``."""
    for name in names:
        parser.add_argument(
            f"--{name}",
            metavar="PYTHON",
            default=python(name, root),
            help=f"of an environment that has {TITLES[name]}; without one it takes no part "
            "(default: what scripts/setup-peers made)",
        )


def printed(python: str, program: str, *arguments: str, seconds: float) -> list[str]:
    """Run a program of this folder in a peer's Python; return the lines it prints.

    Raises BenchmarkError if it fails, or prints nothing, and TimeoutExpired.
    """
    done = subprocess.run(
        [python, "-m", f"benchmarks.peers.{program}", *arguments],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "src")))},
    )
    if done.returncode or not done.stdout:
        raise BenchmarkError(f"{program} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout.splitlines()
