"""Applications and checkpoints that a command line names by the URL of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wallaroo.cli.main import main
from wallaroo.cli.status import parse_target_and_query
from wallaroo.state.checkpoint import open_checkpoint
from wallaroo.state.store.stored_checkpoint import CACHE, cache_folder

URL = "s3://bucket/app"


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WALLAROO_CACHE", str(tmp_path))


def test_a_url_is_the_place_of_an_application() -> None:
    assert parse_target_and_query([URL, "partition-query"]) == (URL, "partition")


def test_status_looks_for_the_run_in_the_cache(capsys: pytest.CaptureFixture[str]) -> None:
    open_checkpoint(cache_folder(URL), is_durable=False).release()

    assert main(["status", URL]) == 1

    assert f"no application runs on checkpoint {URL}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["status", URL],
        ["state", "list", "--checkpoint", URL],
        ["state", "verify", URL],
        ["sql", "select 1", "--checkpoint", URL],
    ],
    ids=lambda command: command[0],
)
def test_a_url_that_this_machine_has_no_cache_of_is_refused(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 1

    message = capsys.readouterr().err
    assert f"this machine has no cache of {URL}. If it is a checkpoint, look on the" in message
    assert f"copy its files, which are below {URL}/files/, to a folder" in message
    assert str(cache_folder(URL)) not in message


@pytest.mark.parametrize("command", [["verify"], ["list", "--checkpoint"]], ids=lambda it: it[0])
def test_a_cache_is_named_as_its_checkpoint(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    cache = cache_folder(URL)
    open_checkpoint(cache, is_durable=False).release()
    (cache / CACHE).write_text(json.dumps({"url": URL}))

    main(["state", *command, URL])

    printed = "".join(capsys.readouterr())
    assert URL in printed
    assert str(cache) not in printed
