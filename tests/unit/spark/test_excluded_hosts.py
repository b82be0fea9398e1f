"""Hosts that cannot take part."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from wallaroo.spark.cluster import excluded_hosts as refusals
from wallaroo.spark.cluster.excluded_hosts import WAIT, WAIT_PATIENT, ExcludedHosts


class Settings(dict[str, str]):
    """Spark's own settings, as far as they are asked and changed."""

    def set(self, name: str, value: str) -> None:
        self[name] = value


@pytest.fixture
def settings() -> Settings:
    return Settings({WAIT: "100ms"})


@pytest.fixture
def context(settings: Settings) -> Any:
    scheduler = SimpleNamespace(conf=lambda: settings)
    return SimpleNamespace(
        _jsc=SimpleNamespace(sc=lambda: scheduler), getConf=lambda: dict(settings)
    )


def test_tasks_wait_for_their_own_hosts_while_some_host_is_refused(
    context: Any, settings: Settings
) -> None:
    refused = ExcludedHosts(context)
    refused.add("a", "no library")
    refused.add("b", "no checkpoint")
    assert settings[WAIT] == WAIT_PATIENT
    refused.drop("a")
    assert settings[WAIT] == WAIT_PATIENT
    refused.keep({"a", "c"})  # b has gone
    assert settings[WAIT] == "100ms"


def test_tasks_wait_for_their_own_hosts_while_members_are_probed(
    context: Any, settings: Settings
) -> None:
    """A failed attempt would run elsewhere, where it succeeds and says nothing of its host."""
    excluded = ExcludedHosts(context)
    with excluded.patient():
        assert settings[WAIT] == WAIT_PATIENT
        excluded.add("a", "no folder")
    assert settings[WAIT] == WAIT_PATIENT
    excluded.drop("a")
    assert settings[WAIT] == "100ms"


def test_a_reason_is_news_once(context: Any) -> None:
    refused = ExcludedHosts(context)
    added = [refused.add("a", why) for why in ("no library", "no library", "no checkpoint")]
    assert added == [True, False, True]
    refused.keep(())
    assert refused.add("a", "no checkpoint")


def test_a_refused_host_is_asked_again_after_a_while(
    context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = ExcludedHosts(context)
    assert refused.may_join("a")
    refused.add("a", "no library")
    assert not refused.may_join("a")
    monkeypatch.setattr(refusals.time, "monotonic", lambda: float("inf"))
    assert refused.may_join("a")
