"""The same jobs in other engines, each in a Python of its own: no dependency of the package.

``scripts/setup-peers`` makes these Pythons in ``.peers/``, as `make bench` has it done; benchmarks
that have a peer find it there.

Where it runs: benchmarks, which start the programs beside this file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

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
