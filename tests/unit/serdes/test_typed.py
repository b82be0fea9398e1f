"""Plain forms of values that msgspec does not know."""

from __future__ import annotations

import datetime
from typing import Any

import pandas as pd
import pytest

from wallaroo.serdes import Json, MessagePack

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
