"""A subscription to MQTT topics that acknowledges messages on disk.

Where it runs: feeder processes.  It imports paho-mqtt, which is optional.

A broker that has lost the session (after a restart without persistence, or because another broker
has the address) has lost the messages that waited in it: this is reported, as their number is not
known.

The broker sends a bounded number of messages ahead of acknowledgements (MQTT's inflight messages),
so that the waiting messages are bounded and the client's thread never blocks.
"""

from __future__ import annotations

import logging
import sys
from functools import partial
from typing import Any

from wallaroo.connectors.mqtt.client import ERRORS, client_of, will_pass
from wallaroo.connectors.mqtt.source import MQTTSourceConfig
from wallaroo.errors import PeerError
from wallaroo.sources.feed import framed
from wallaroo.sources.feeds.inbox import Inbox, InboxFeed, Pushed

KEEP_ALIVE_S = 30
TIMED_OUT = "Keep alive timeout"  # the client's reason if the broker has not answered
RETRY_S_MAX = 5
SUBSCRIBED = "subscribed"  # the position of a source that has got messages
_log = logging.getLogger(__name__)


class Subscriber:
    """One client; its callbacks run in the thread of ``run``."""

    def __init__(
        self,
        config: MQTTSourceConfig[Any],
        inbox: Inbox,
        has_session: bool,
        keep_alive_s: int = KEEP_ALIVE_S,
    ):
        """Create a client; ``has_session``: the broker has a session of it, with what waits."""
        self._config = config
        self._client_id = config.client_id or f"wallaroo-{config.name}"
        self._place = f"MQTT broker {config.host}:{config.port}"
        self._inbox = inbox
        self._has_session = has_session
        self._keep_alive_s = keep_alive_s
        self._refusal: PeerError | None = None
        self._client: Any = client_of(config, self._client_id, clean_session=False, manual_ack=True)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message
        self._client.on_disconnect = self._on_lost
        self._client.on_connect_fail = self._on_failure
        self._client.reconnect_delay_set(1, RETRY_S_MAX)

    def run(self) -> None:
        """Accept messages and reconnect.  Raises PeerError for permanent errors."""
        self._inbox.is_away = True
        own = self._config
        self._client.connect_async(own.host, own.port, keepalive=self._keep_alive_s)
        self._client.loop_forever(retry_first_connection=True)
        if self._refusal is not None:
            raise self._refusal

    def _on_connect(self, _: Any, __: Any, flags: Any, reason: Any, ____: Any) -> None:
        if will_pass(reason):
            return  # the broker closes the connection: this is a break like others
        if reason.is_failure:
            self._refuse(f"the client '{self._client_id}': {reason}")
            return
        if self._has_session and not flags.session_present and self._config.qos:
            _log.warning(
                "source '%s': %s has lost the session of client '%s': messages that it had not "
                "delivered, or that came since, are missing",
                *(self._config.name, self._place, self._client_id),
            )
        self._inbox.problem = ""
        self._inbox.is_away = False
        self._client.subscribe(self._config.topic, self._config.qos)

    def _on_subscribe(self, _: Any, __: Any, ___: Any, reasons: list[Any], ____: Any) -> None:
        if reasons[0].is_failure:
            self._refuse(f"the topic '{self._config.topic}': {reasons[0]}")
        else:
            self._has_session = True

    def _on_message(self, _: Any, __: Any, message: Any) -> None:
        stored = partial(self._client.ack, message.mid, message.qos) if message.qos else None
        self._inbox.put(Pushed(framed(message.payload), SUBSCRIBED, stored))

    def _on_lost(self, _: Any, __: Any, ___: Any, reason: Any, ____: Any) -> None:
        why = f": no answer within {self._keep_alive_s} s" if reason == TIMED_OUT else ""
        self._inbox.problem = f"{self._place} is unavailable{why}"

    def _on_failure(self, *_: Any) -> None:
        """Name the error, which the client does not pass on, but handles at this moment."""
        error = sys.exception()
        assert isinstance(error, OSError)
        why = ERRORS.sentence(error)
        self._inbox.problem = f"{self._place} is unavailable: {why}"
        if not ERRORS.is_transient(error):
            self._end(f"cannot be connected to: {why}. Correct the host or the certificates")

    def _refuse(self, what: str) -> None:
        self._end(f"refuses {what}. Correct the name, the password or the rights")

    def _end(self, why: str) -> None:
        """Keep the first permanent problem, and end."""
        self._refusal = self._refusal or PeerError(
            f"Source '{self._config.name}': {self._place} {why}, then run again."
        )
        self._client.disconnect()


def open_feed(config: MQTTSourceConfig[Any], resume: bytes) -> InboxFeed:
    def follow(inbox: Inbox, position: Any) -> None:
        Subscriber(config, inbox, position is not None).run()

    return InboxFeed(config.name, follow, resume)
