"""An upgrade of all state, tried before it runs: ``wallaroo plan --try-upgrade``.

    python -m benchmarks.state.upgrade [--keys 1000000]

A run in one process counts an event for each key, as objects of version 1 of its state class.  Then
the application with version 2 is compared with the checkpoint, and every object is upgraded without
writing it.

Where it runs: the programs run in processes of their own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.lib import loads
from benchmarks.lib.machine import BenchmarkError, Report, options, settings_of

SECONDS_WANTED = 60.0  # on a free core; elapsed time depends on what else runs
BEFORE = """
class Account:
    def __init__(self):
        self.cents = 0
        self.owner = ""
"""
AFTER = """
class Account:
    state_version = 2

    def __init__(self, euros=0.0, owner=""):
        self.euros = euros
        self.owner = owner


@wallaroo.upgrade(Account, from_version=1)
def in_euros(fields):
    return Account(fields["cents"] / 100, fields["owner"])
"""
REST = """
@wallaroo.key_extractor
def number(line):
    return line


@wallaroo.state_computation(name="accounts", state=Account)
def add(line, account) -> None:
    account.owner = f"owner of {line}"
    account.cents = 1250


def application_setup(args):
    lines = wallaroo.source("numbers", wallaroo.FileSourceConfig("numbers", "numbers.txt"))
    pipeline = lines.key_by(number).to(add).to_sink(wallaroo.FileSinkConfig("out.txt"))
    return wallaroo.build_application("accounts", pipeline)
"""


def main() -> int:
    """Measure and report."""
    args = _options()
    report = Report("upgrade", settings_of(args))
    with loads.scratch(args.scratch) as folder:
        (folder / "numbers.txt").write_text("".join(f"{n}\n" for n in range(args.keys)))
        app = folder / "accounts.py"
        app.write_text(f"import wallaroo\n{BEFORE}{REST}")
        began = time.monotonic()
        kept = ("accounts.py", "--checkpoint", "kept")
        _command(folder, "wallaroo.cli.in_process", "--no-live", "--status", "off", *kept)
        report.notes.append(f"the state was made in {time.monotonic() - began:.0f} s")

        app.write_text(f"import wallaroo\n{AFTER}{REST}")
        began, used = time.monotonic(), _cpu_s()
        answer = _command(folder, "wallaroo", "plan", *kept, "--try-upgrade", "--json")
        seconds, used = time.monotonic() - began, _cpu_s() - used
    (trial,) = json.loads(answer)["tried"]
    if trial["upgraded"] != args.keys:
        raise BenchmarkError(f"not every object was upgraded: {trial}")
    report.add(f"{args.keys:,} objects tried: CPU time", used, "s", at_most=SECONDS_WANTED)
    report.add("elapsed, beside what else the machine did", seconds, "s")
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000, help="default %(default)d")
    return parser.parse_args()


def _cpu_s() -> float:
    """Return the CPU time of the commands that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def _command(folder: Path, module: str, *arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=folder, capture_output=True, text=True
    )
    if ran.returncode:
        raise BenchmarkError(f"{module} ended with {ran.returncode}: {ran.stderr[-2000:]}")
    return ran.stdout


if __name__ == "__main__":
    sys.exit(main())
