"""A subscription to MQTT topics: messages are acknowledged when they are on disk.

Where it runs: feeder processes.  It imports paho-mqtt, which is optional.

The broker sends a bounded number of messages ahead of acknowledgements (MQTT's inflight messages),
so that what waits is bounded and the client's thread never blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from wallaroo.errors import PeerError
from wallaroo.sources.feed import framed
from wallaroo.sources.inbox import Inbox, Pushed

KEEP_ALIVE_S = 30
RETRY_S_MAX = 5


@dataclass(frozen=True, slots=True)
class Subscription:
    """What is subscribed to, where, and as whom."""

    source: str
    address: tuple[str, int]
    topic: str
    qos: int
    client_id: str
    login: tuple[str, str] = field(repr=False)
    is_tls: bool

    @property
    def place(self) -> str:
        """What errors call the broker."""
        return f"MQTT broker {self.address[0]}:{self.address[1]}"


def follow(subscription: Subscription, inbox: Inbox) -> None:
    """Take messages for as long as the process lives; connect again as often as it must.

    Raises PeerError where the broker refuses the client or the subscription.
    """
    client: Any = Client(
        CallbackAPIVersion.VERSION2,
        client_id=subscription.client_id,
        clean_session=False,
        manual_ack=True,
    )
    user, password = subscription.login
    if user:
        client.username_pw_set(user, password)
    if subscription.is_tls:
        client.tls_set()
    refusals: list[PeerError] = []

    def refuse(what: str) -> None:
        refusals.append(
            PeerError(
                f"Source '{subscription.source}': {subscription.place} refuses {what}. Correct the "
                f"name, the password or the rights, then run again."
            )
        )
        client.disconnect()

    def on_connect(_: Any, __: Any, ___: Any, reason: Any, ____: Any) -> None:
        if reason.is_failure:
            refuse(f"the client '{subscription.client_id}': {reason}")
            return
        inbox.problem = ""
        client.subscribe(subscription.topic, subscription.qos)

    def on_subscribe(_: Any, __: Any, ___: Any, reasons: list[Any], ____: Any) -> None:
        if reasons[0].is_failure:
            refuse(f"the topic '{subscription.topic}': {reasons[0]}")

    def on_message(_: Any, __: Any, message: Any) -> None:
        stored = partial(client.ack, message.mid, message.qos) if message.qos else None
        inbox.put(Pushed(framed(message.payload), None, stored))

    def on_lost(*_: Any) -> None:
        inbox.problem = f"{subscription.place} is away"

    client.on_connect = on_connect
    client.on_subscribe = on_subscribe
    client.on_message = on_message
    client.on_disconnect = on_lost
    client.on_connect_fail = on_lost
    client.reconnect_delay_set(1, RETRY_S_MAX)
    client.connect_async(*subscription.address, keepalive=KEEP_ALIVE_S)
    client.loop_forever(retry_first_connection=True)
    if refusals:
        raise refusals[0]
