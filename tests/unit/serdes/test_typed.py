"""Plain forms of values that msgspec does not know."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pytest
from pydantic import BaseModel

from wallaroo.serdes import Csv, Json, MessagePack

TIMES: dict[str, tuple[Any, str]] = {
    "time": (pd.Timestamp("2026-01-02T03:04:05.000006"), "2026-01-02T03:04:05.000006"),
    "time with a zone": (pd.Timestamp("2026-01-02T03:04:05Z"), "2026-01-02T03:04:05Z"),
    "nanoseconds": (pd.Timestamp(123), "1970-01-01T00:00:00.000000123"),
    "duration": (pd.Timedelta(seconds=5), "PT5S"),
}


@pytest.mark.parametrize("name", TIMES)
def test_a_time_of_pandas_is_written_as_pythons(name: str) -> None:
    value, text = TIMES[name]

    assert Json().encoder.encode({"v": value}) == b'{"v":"%b"}' % text.encode()


def test_a_time_of_pandas_is_packed_as_pythons() -> None:
    value = pd.Timestamp("2026-01-02T03:04:05Z")
    own = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)

    assert MessagePack().encoder.encode(value) == MessagePack().encoder.encode(own)


@dataclass
class Moment:
    at: datetime.datetime


@dataclass
class Alarm:
    at: datetime.time


class Note(BaseModel):
    at: datetime.datetime


@pytest.mark.parametrize("form", [Json, Csv])
@pytest.mark.parametrize("kind", [Moment, Alarm, Note])
def test_an_offset_of_seconds_is_refused(form: Any, kind: Any) -> None:
    minutes = datetime.timezone(datetime.timedelta(hours=-1, minutes=-30))
    seconds = datetime.timezone(datetime.timedelta(hours=1, seconds=30))
    noon = datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC)
    serde = form(kind)

    def event(zone: datetime.tzinfo | None) -> Any:
        at = noon.replace(tzinfo=zone)
        return kind(at=at.timetz() if kind is Alarm else at)

    for zone in (None, datetime.UTC, minutes):
        assert serde.decoder.decode(serde.encoder.encode(event(zone))) == event(zone)
    with pytest.raises(ValueError, match="is not of whole minutes"):
        serde.encoder.encode(event(seconds))
