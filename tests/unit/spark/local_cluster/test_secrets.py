"""Where the secret of a cluster is, and who may read it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from wallaroo.errors import PeerError
from wallaroo.spark.local_cluster import secrets
from wallaroo.spark.local_cluster.state import ClusterRecord, read, write

URL = "spark://127.0.0.1:7077"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_drivers_of_this_user_find_it_until_the_cluster_ends(tmp_path: Path) -> None:
    assert secrets.secret_of(URL) == ""
    secrets.publish(URL, "hidden")
    assert secrets.secret_of(URL) == secrets.secret_of("spark://localhost:7077") == "hidden"
    secrets.withdraw(URL)
    assert secrets.secret_of(URL) == ""


def test_a_place_that_cannot_be_had_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(PeerError, match="Set XDG_STATE_HOME"):
        secrets.publish(URL, "hidden")
    assert secrets.secret_of(URL) == ""


def test_only_its_user_may_read_it(tmp_path: Path) -> None:
    secrets.publish(URL, "hidden")
    write(tmp_path, ClusterRecord(1, "1g", secret="hidden"))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if b"hidden" in path.read_bytes()] == files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_cluster_of_an_older_version_is_used_as_it_was_started(tmp_path: Path) -> None:
    write(tmp_path, ClusterRecord(1, "1g"))
    text = (tmp_path / "cluster.json").read_text().replace(',\n "secret": ""', "")
    assert "secret" not in text
    (tmp_path / "cluster.json").write_text(text)
    record = read(tmp_path)
    assert record is not None
    assert secrets.settings_with(record.secret) == {}
    assert secrets.bearer(record.secret) == {}
