"""What a benchmark says: the machine it ran on, its figures as an aligned table, and the same as
JSON.

Where it runs: the benchmark's process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

UNKNOWN = "unknown"
STEAL = 8  # of the fields of /proc/stat's first line
TEMPORARY, DURABLE = "temporary", "durable"  # without and with a checkpoint


class BenchmarkError(Exception):
    """A measurement that cannot be made, or that would say nothing; the text says why and what
    helps.
    """


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the figures come from."""

    cpu: str
    cores: int  # that this process may use
    memory_gib: float
    system: str
    python: str
    java: str
    pyspark: str
    load: float  # of the last minute when the benchmark began: above 0.5 other work was going on

    @classmethod
    def here(cls) -> Machine:
        """Describe this machine."""
        return cls(
            cpu=_cpu(),
            cores=cores(),
            memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            system=(
                f"{_distribution()} ({platform.system()} {platform.release()}, "
                f"{platform.machine()})"
            ),
            python=platform.python_version(),
            java=_java(),
            pyspark=_version("pyspark"),
            load=round(os.getloadavg()[0], 2),
        )

    def __str__(self) -> str:
        return (
            f"{self.cpu}, {self.cores} cores, {self.memory_gib:g} GiB; {self.system}; "
            f"Python {self.python}, Java {self.java}, pyspark {self.pyspark}; load {self.load:g} "
            f"at the start"
        )


@dataclass(slots=True)
class Stolen:
    """Cores that the host of a virtual machine gave to others while this one had work for them,
    from now on (Linux, proc(5): ``steal`` in /proc/stat).
    """

    began_s: float = field(default_factory=time.monotonic)
    stolen_s: float = field(default_factory=lambda: stolen_s())

    @property
    def cores(self) -> float:
        """How many, on average."""
        return (stolen_s() - self.stolen_s) / max(time.monotonic() - self.began_s, 1e-9)

    def __str__(self) -> str:
        return f"{self.cores:.2f} cores stolen"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number, and the number it has to reach if there is one."""

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def target(self) -> str:
        """The target in words; empty if there is none."""
        if self.at_least is not None:
            return f">= {number(self.at_least)}"
        return f"<= {number(self.at_most)}" if self.at_most is not None else ""

    @property
    def verdict(self) -> str:
        """``ok``, ``missed``, or nothing where there is no target."""
        if not self.target:
            return ""
        is_low = self.at_least is not None and self.value < self.at_least
        is_high = self.at_most is not None and self.value > self.at_most
        return "missed" if is_low or is_high else "ok"


@dataclass(slots=True)
class Report:
    """The outcome of one benchmark."""

    benchmark: str
    settings: dict[str, object]  # what the command line chose
    machine: Machine = field(default_factory=Machine.here)
    command: str = field(default_factory=lambda: _command())
    began: str = field(default_factory=lambda: time.strftime("%Y-%m-%d %H:%M:%S %z"))
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # at the start, at the end
    turn_ns: list[float] = field(default_factory=lambda: [turn_of_a_loop()])
    stolen: Stolen = field(default_factory=lambda: Stolen())

    def add(
        self,
        name: str,
        value: float,
        unit: str,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> None:
        """Add a figure."""
        self.figures.append(Figure(name, value, unit, at_least, at_most))

    def text(self) -> str:
        """The whole report for people."""
        rows = [
            (figure.name, number(figure.value), figure.unit, figure.target, figure.verdict)
            for figure in self.figures
        ]
        lines = [
            f"{self.benchmark}: {self.command}",
            str(self.machine),
            "",
            table(("", "value", "unit", "target", ""), rows),
        ]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def finish(self, json_path: Path | None) -> int:
        """Print, write the JSON file if one is wanted; return the exit code, 0 also where a target
        was missed.
        """
        self.turn_ns.append(turn_of_a_loop())
        before, after = self.turn_ns[0], self.turn_ns[-1]
        self.notes.append(
            f"speed of the machine: a turn of a plain Python loop took {before:.0f} ns at the "
            f"start, {after:.0f} ns at the end; {self.stolen} in between"
        )
        print(f"\n{self.text()}\n", flush=True)
        if json_path is not None:
            json_path.parent.mkdir(parents=True, exist_ok=True)
            content = {**asdict(self), "stolen": self.stolen.cores}
            json_path.write_text(json.dumps(content, indent=2) + "\n")
        return 0


def options(description: str | None) -> argparse.ArgumentParser:
    """A parser with what all benchmarks have in common."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON, too")
    parser.add_argument(
        "--scratch",
        type=Path,
        metavar="DIR",
        help="where spools and checkpoints go (default: the system's)",
    )
    return parser


def add_modes(parser: argparse.ArgumentParser) -> None:
    """Both modes of a checkpoint, or one of them: ``args.modes``."""
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument(
        "--durable",
        dest="modes",
        action="store_const",
        const=(DURABLE,),
        help="with a checkpoint only",
    )
    modes.add_argument(
        "--temporary",
        dest="modes",
        action="store_const",
        const=(TEMPORARY,),
        help="without a checkpoint only",
    )
    parser.set_defaults(modes=(TEMPORARY, DURABLE))


def settings_of(args: argparse.Namespace) -> dict[str, object]:
    """The settings that belong in a report."""
    return {name: value for name, value in vars(args).items() if name not in ("json", "scratch")}


def turn_of_a_loop() -> float:
    """How long a turn of a plain Python loop takes now, in ns: median of 9 tries.  Machines that
    others share are slower at times.
    """
    tries, turns = [], 200_000
    for _ in range(9):
        began, total = time.perf_counter_ns(), 0
        for turn in range(turns):
            total += turn
        tries.append((time.perf_counter_ns() - began) / turns)
    return statistics.median(tries)


def stolen_s(stat: Path = Path("/proc/stat")) -> float:
    """Seconds of processor time that other virtual machines had in place of this one since it
    started; 0 where the system does not say.
    """
    try:
        fields = stat.read_text().partition("\n")[0].split()
    except OSError:
        return 0.0
    return int(fields[STEAL]) / os.sysconf("SC_CLK_TCK") if len(fields) > STEAL else 0.0


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def median(values: Iterable[float]) -> float:
    """The median; raises BenchmarkError where nothing was measured."""
    found = list(values)
    if not found:
        raise BenchmarkError("nothing was measured; let the benchmark run longer.")
    return statistics.median(found)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the straight line with the least squared distances to ``points``; 0 for fewer
    than two.

    >>> slope([(0, 1), (1, 3), (2, 5)])
    2.0
    """
    if len({x for x, _ in points}) < 2:
        return 0.0
    return statistics.linear_regression([x for x, _ in points], [y for _, y in points]).slope


def number(value: float | None) -> str:
    """Three significant digits at least, and thousands apart.

    >>> number(1234567.8), number(12.345), number(0.01234), number(0)
    ('1,234,568', '12.3', '0.0123', '0')
    """
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 or value == 0 else f"{value:.3g}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be; the second one is right-aligned.

    >>> print(table(("", "value"), [("a", "1"), ("bb", "20")]))
          value
      a       1
      bb     20
    """
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    lines = []
    for row in (head, *rows):
        cells = (
            cell.rjust(width) if at == 1 else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  " + "  ".join(cells).rstrip())
    return "\n".join(lines)


def _command() -> str:
    spec = sys.modules["__main__"].__spec__
    words = ["-m", spec.name.removesuffix(".__main__")] if spec else [sys.argv[0]]
    return shlex.join(["python", *words, *sys.argv[1:]])


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or UNKNOWN


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", UNKNOWN)
    except OSError:
        return platform.platform()


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    try:
        asked = subprocess.run(
            [f"{home}/bin/java" if home else "java", "-version"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return UNKNOWN
    words = asked.stderr.split('"')
    return words[1] if len(words) > 1 else UNKNOWN


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return UNKNOWN
