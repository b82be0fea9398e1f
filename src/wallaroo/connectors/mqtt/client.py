"""The reasons for which an MQTT broker refuses a client for the moment only.

Their numbers are those of MQTT 5 (section 3.2.2.2 of its standard); paho-mqtt translates those of
MQTT 3.1.1, whose "server unavailable" is one of them.
"""

from __future__ import annotations

from typing import Any

PASSING = frozenset(
    [
        0x88,  # server unavailable
        0x89,  # server busy
        0x97,  # quota exceeded
        0x9F,  # connection rate exceeded
    ]
)


def will_pass(reason: Any) -> bool:
    """Return whether a refused client may be accepted later as it is."""
    return reason.value in PASSING
