"""The Iceberg sink with a catalog of the REST protocol: each row once, whatever the server answers
or does.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.lake.child import TASKS, rows_of
from tests.connectors.lake.rest_catalog import RestCatalog, running_catalog
from tests.connectors.lake.tables import NAME, catalog_of, content, rows, sink
from tests.connectors.lake.test_lake_sinks import (
    DRAIN_S,
    KEYED,
    opened,
    put,
    session_of,
    system_of,
    tokens_of,
    written,
)
from tests.forks import Forks
from tests.unit.sinks.broken import error_of
from tests.unit.sinks.identities import commit_of
from wallaroo.sinks import Delete

Eventually = Callable[..., None]
ANSWERS = [
    (500, "after"),
    (502, "after"),
    (504, "after"),
    (503, "after"),
    (503, "before"),
    (429, "before"),
    (419, "before"),
    (409, "before"),
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestCatalog]:
    with running_catalog(tmp_path) as started:
        yield started


def config_of(folder: Path, columns: Any = KEYED, **options: Any) -> Any:
    return sink("iceberg", folder, columns, **options)


@pytest.mark.parametrize("point", ["lake.begin", "lake.committed", "iceberg.left"])
def test_a_killed_driver_puts_each_row_once(
    server: RestCatalog, tmp_path: Path, child_of: Callable[..., Forks], point: str
) -> None:
    driver = child_of("tests.connectors.lake.child")
    arguments = ("iceberg", tmp_path, tmp_path / "driver", 3)
    assert driver.run(*arguments, WALLAROO_FAULT=f"{point}:1")[0] == -signal.SIGKILL
    assert driver.run(*arguments)[0] == 0
    wanted = [row for batch in range(3) for task in range(TASKS) for row in rows_of(batch, task)]
    assert rows("iceberg", tmp_path) == sorted(wanted)


@pytest.mark.parametrize("key", [(), ("key",)])
def test_a_commit_whose_answer_is_an_error_is_looked_up_and_written_once(
    server: RestCatalog, tmp_path: Path, key: tuple[str, ...]
) -> None:
    """502 and 504 are answers of what is between the client and the server: it may have written."""
    config = config_of(tmp_path, key=key)
    put(config, tmp_path / "s", [("first", 0)])
    for number, (code, when) in enumerate(ANSWERS):
        server.answer_next(code, when)
        put(config, tmp_path / "s", [(f"{code} {when}", number)], last=number)
        assert not server.has_answer
    wanted = [(f"{code} {when}", number) for number, (code, when) in enumerate(ANSWERS)]
    assert rows("iceberg", tmp_path) == sorted([("first", 0), *wanted])


def test_output_waits_while_the_server_is_unavailable(
    server: RestCatalog, tmp_path: Path, eventually: Eventually
) -> None:
    config = config_of(tmp_path, group_s=0.0)
    put(config, tmp_path / "s", [("a", 1)])
    server.kill()
    committer = opened(config, tmp_path / "s", 0)
    committer.commit(commit_of(1), tokens_of(config, tmp_path / "s", 1, ("b", 2)))
    eventually(lambda: NAME in (committer.status().waiting_for or ""), "the cause is named")
    server.start()
    committer.close(DRAIN_S)
    assert rows("iceberg", tmp_path) == [("a", 1), ("b", 2)]


def test_a_denied_commit_ends_the_run_and_its_rows_wait(
    server: RestCatalog, tmp_path: Path, eventually: Eventually
) -> None:
    config = config_of(tmp_path, group_s=0.0)
    put(config, tmp_path / "s", [("a", 1)])
    server.answer_next(403, "before")
    committer = opened(config, tmp_path / "s", 0)
    committer.commit(commit_of(1), tokens_of(config, tmp_path / "s", 1, ("b", 2)))
    assert "as the test wants it. Nothing is lost" in error_of(committer, eventually)
    assert committer.status().pending_bytes
    assert rows("iceberg", tmp_path) == [("a", 1)]


def test_of_two_drivers_one_writes_a_commit(server: RestCatalog, tmp_path: Path) -> None:
    config = config_of(tmp_path)
    put(config, tmp_path / "s", [("a", 0)])
    paused, newer = (session_of(config, tmp_path / "s") for _ in range(2))
    assert written(newer, config, tmp_path / "s", 1, ("b", 1))
    system = system_of(config, tmp_path / "s")
    with pytest.raises(system.errors) as raised:
        written(paused, config, tmp_path / "s", 1, ("b", 1))
    assert system.waiting_for(raised.value)
    assert not written(session_of(config, tmp_path / "s"), config, tmp_path / "s", 1, ("b", 1))
    assert rows("iceberg", tmp_path) == [("a", 0), ("b", 1)]


def test_keys_partitions_and_new_columns_work(server: RestCatalog, tmp_path: Path) -> None:
    config = config_of(tmp_path, key="key", partition_by="bucket[4](key)")
    put(config, tmp_path / "s", [("a", 1), ("b", 2), ("a", 3)])
    wider = config_of(tmp_path, {**KEYED, "more": "double"}, key="key", evolve=True)
    put(wider, tmp_path / "s", [("c", 4, 0.5), Delete("b")], last=0)
    found = sorted(content("iceberg", tmp_path).to_pylist(), key=lambda row: row["key"])
    assert found == [
        {"key": "a", "value": 3, "more": None},
        {"key": "c", "value": 4, "more": 0.5},
    ]
    spec = catalog_of(tmp_path).load_table(NAME).spec()
    assert [str(field.transform) for field in spec.fields] == ["bucket[4]"]
