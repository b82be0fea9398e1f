"""MQTT clients with our defaults, and their errors' meaning for runs."""

from __future__ import annotations

from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from wallaroo.connectors.mqtt.sink import MQTTSinkConfig
from wallaroo.connectors.mqtt.source import MQTTSourceConfig
from wallaroo.network.client_errors import ClientErrors, is_untrusted, sentence_of
from wallaroo.network.tls import TLS
from wallaroo.network.tls_sockets import client_context

# The numbers of MQTT 5 (section 3.2.2.2 of its standard) for a broker that refuses a client for the
# moment only; paho-mqtt translates those of MQTT 3.1.1, whose "server unavailable" is one of them.
PASSING = frozenset(
    [
        0x88,  # server unavailable
        0x89,  # server busy
        0x97,  # quota exceeded
        0x9F,  # connection rate exceeded
    ]
)


def client_of(
    config: MQTTSourceConfig[Any] | MQTTSinkConfig, client_id: str, **options: Any
) -> Any:
    """Return an unconnected client.  Raises PeerError for a TLS file that cannot be used."""
    client = Client(CallbackAPIVersion.VERSION2, client_id=client_id, **options)
    if config.username:
        client.username_pw_set(config.username, config.password)
    if config.tls:
        client.tls_set_context(client_context(TLS() if config.tls is True else config.tls))
    return client


def will_pass(reason: Any) -> bool:
    """Return whether a refused client may be accepted later as it is."""
    return reason.value in PASSING


def _is_transient(error: Exception) -> bool:
    return isinstance(error, OSError) and not is_untrusted(error)


def _sentence(error: Exception) -> str:
    return getattr(error, "strerror", "") or sentence_of(error)


ERRORS = ClientErrors((OSError, ValueError), _is_transient, _sentence)
