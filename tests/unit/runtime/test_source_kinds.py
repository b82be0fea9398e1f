"""A source of another kind under the name of one that has a position in the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wallaroo
from tests.unit.runtime.applications import line, text
from wallaroo.errors import CheckpointError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run

OTHER = r"Source 'orders' was a {was} source and is a {now} source now: their positions do not"
WAY_OUT = r"compare\. Name the new one otherwise: it begins at its own beginning then\."


class TwoLines:
    """Two lines."""

    def initial_value(self) -> str:
        return "1"

    def apply(self, value: str) -> str | None:
        return None if value == "2" else "2"


def file_source(folder: Path) -> Any:
    (folder / "orders.txt").write_text("1\n2\n")
    return wallaroo.FileSourceConfig("orders", str(folder / "orders.txt"), text)


def spooled_source(folder: Path) -> Any:
    return wallaroo.GenSourceConfig("orders", TwoLines())


def kafka_source(folder: Path) -> Any:
    return wallaroo.KafkaSourceConfig("orders", "orders", "127.0.0.1:9", text)


def run_of(folder: Path, config: Any, name: str = "orders", **options: Any) -> Run:
    sink = wallaroo.FileSinkConfig(str(folder / "out"), line)
    pipeline = wallaroo.source(name, config).to_sink(sink)
    application = wallaroo.build_application("app", pipeline)
    chosen = RunOptions(checkpoint=folder / "state", status_address=None, **options)
    return Run(application, chosen, InProcessHost())


def finish(run: Run) -> None:
    run.start()
    assert run.wait(400)
    assert (run.exception, run.status().state) == (None, "finished")


@pytest.mark.parametrize(
    ("source", "successor", "was", "now"),
    [
        (file_source, kafka_source, "file", "kafka"),
        (spooled_source, kafka_source, "generator", "kafka"),
        (spooled_source, file_source, "generator", "file"),
        (file_source, spooled_source, "file", "generator"),
    ],
)
@pytest.mark.parametrize("is_allowed", [False, True])
def test_a_source_that_becomes_one_of_another_kind_is_refused_with_the_way_out(
    source: Any, successor: Any, was: str, now: str, is_allowed: bool, tmp_path: Path
) -> None:
    finish(run_of(tmp_path, source(tmp_path)))
    before = (tmp_path / "state" / "plan.json").read_text()
    words = f"(?s){OTHER.format(was=was, now=now)} {WAY_OUT}.*cannot become one of another kind"
    with pytest.raises(CheckpointError, match=words):
        run_of(tmp_path, successor(tmp_path), allow_incompatible=is_allowed).start()
    assert (tmp_path / "state" / "plan.json").read_text() == before


def test_a_successor_under_another_name_begins_at_its_beginning(tmp_path: Path) -> None:
    finish(run_of(tmp_path, spooled_source(tmp_path)))
    path = file_source(tmp_path).path
    successor = wallaroo.FileSourceConfig("orders file", path, text)
    with pytest.raises(CheckpointError, match="Source 'orders' is gone, and input it has accepted"):
        run_of(tmp_path, successor, "orders file").start()
    finish(run_of(tmp_path, successor, "orders file", allow_incompatible=True))
    parts = sorted((tmp_path / "out").glob("part-*"))
    assert "".join(part.read_text() for part in parts) == "1\n2\n1\n2\n"
