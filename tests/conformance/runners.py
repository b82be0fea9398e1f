"""The runners, behind one call: an application's builder and its input lines in, outputs by
sink out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wallaroo import run
from wallaroo.api.application import Application
from wallaroo.instrumentation.tuning import DEFAULT, Tuning
from wallaroo.options import HostName
from wallaroo.testing import run_local

Build = Callable[[Path, Path], Application]
Lines = Mapping[str, Sequence[bytes]]
# the files that applications of the suite write, in the order of their sinks
SINKS = ("out", "out2", "out3")
REPOSITORY = str(Path(__file__).parents[2])  # where ``tests.conformance.apps`` is imported from
RUN_S_MAX = 400.0


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """In this process, with so many batches and tasks."""

    batches: int
    tasks: int

    def __call__(self, build: Build, lines: Lines) -> dict[str, list[bytes]]:
        nowhere = Path("/nowhere")
        done = run_local(build(nowhere, nowhere), lines, batches=self.batches, tasks=self.tasks)
        return dict(zip(SINKS, done.by_sink.values(), strict=False))


@dataclass(frozen=True, slots=True)
class SparkRunner:
    """On Spark, from files to files: such a run ends when the files are read.  Raises what ended
    the run.
    """

    session: Any
    host: HostName = "micro-batch"
    tuning: Tuning = DEFAULT
    place: str = ""  # a URL below which each run has a checkpoint; none if empty

    def __call__(
        self,
        build: Build,
        lines: Lines,
        batches: list[int] | None = None,
        dropped: dict[str, Any] | None = None,
    ) -> dict[str, list[bytes]]:
        """Run; ``batches`` gets the number of batches that the run took, ``dropped`` what its steps
        left out.
        """
        with tempfile.TemporaryDirectory(prefix="wallaroo-conformance-") as name:
            folder = Path(name)
            for source, some in lines.items():
                (folder / f"{source}.txt").write_bytes(b"".join(line + b"\n" for line in some))
            handle = run(
                build(folder, folder),
                session=self.session,
                module_paths=(REPOSITORY,),
                host=self.host,
                tuning=self.tuning,
                checkpoint=f"{self.place}/{folder.name}" if self.place else None,
            )
            if not handle.wait(RUN_S_MAX):
                handle.stop()
                raise TimeoutError(
                    f"not in time: the run has not ended by itself: {handle.status()}"
                )
            if handle.exception is not None:
                raise handle.exception
            if batches is not None:
                batches.append(handle.status().batches)
            if dropped is not None:
                dropped.update({each.step: each.counts for each in handle.status().losses})
            written = {sink: folder / f"{sink}.txt" for sink in SINKS}
            return {
                sink: file.read_bytes().split(b"\n")[:-1]
                for sink, file in written.items()
                if file.exists()
            }
