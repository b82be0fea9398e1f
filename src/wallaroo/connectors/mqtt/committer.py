"""Delivery of committed batches to an MQTT broker.

The invariants are those of ``sinks/queued/at_least_once.py``: a slice is done when the broker has
acknowledged all of its messages.  A session is one connection: if it breaks, the next one publishes
the slice again.
"""

from __future__ import annotations

import threading
from typing import Any

from wallaroo.connectors.mqtt.client import ERRORS, client_of, will_pass
from wallaroo.connectors.mqtt.sink import MQTTSinkConfig
from wallaroo.instrumentation.faults import fault_point
from wallaroo.sinks.queued.at_least_once import AckingSystem, Progress, Slice, SlicedSession
from wallaroo.sinks.queued.system import BROKEN_OFF, DeliveryError
from wallaroo.sinks.wrapped_encoder import unpack

SLICE = 500  # unacknowledged messages, at most
ANSWER_S_MAX = 30.0
KEEP_ALIVE_S = 30
QOS = 1


class MQTTSession(SlicedSession):
    """One connection; the client's thread calls back."""

    def __init__(self, config: MQTTSinkConfig, progress: Progress, checkpoint: str):
        """Connect; raise OSError or DeliveryError if that fails."""
        super().__init__(checkpoint, progress, SLICE)
        self._config = config
        self._changed = threading.Condition()
        self._is_open = False
        self._error: DeliveryError | None = None
        self._unacknowledged: set[int] = set()
        self._early: set[int] = set()  # acknowledged while others were still being published
        self._client: Any = client_of(config, config.client_id)
        self._client.max_inflight_messages_set(SLICE)
        self._client.on_connect = self._connected
        self._client.on_disconnect = self._lost
        self._client.on_publish = self._acknowledged
        self._client.connect(config.host, config.port, keepalive=KEEP_ALIVE_S)
        self._client.loop_start()
        try:
            self._wait_for(lambda: self._is_open)
        except BaseException:
            self.close()
            raise

    def deliver(self, part: Slice) -> None:
        fault_point("mqtt.publish")
        # without the lock: the client's thread holds its own when it calls back
        sent = []
        for topic, payload in map(unpack, part.outputs):
            address = topic or self._config.topic
            sent.append(self._client.publish(address, payload, QOS, self._config.retain).mid)
        with self._changed:
            self._unacknowledged = set(sent) - self._early
            self._early.clear()
        try:
            self._wait_for(lambda: not self._unacknowledged)
        finally:
            left = set(self._unacknowledged)
            self.accepted = next((n for n, mid in enumerate(sent) if mid in left), len(sent))
        fault_point("mqtt.acknowledged")

    def cancel(self) -> None:
        """End the wait.  Called from another thread."""
        self._fail(BROKEN_OFF, is_transient=True)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _wait_for(self, condition: Any) -> None:
        with self._changed:
            self._changed.wait_for(lambda: condition() or self._error, ANSWER_S_MAX)
            if self._error is not None:
                raise self._error
            if not condition():
                raise DeliveryError(f"no answer within {ANSWER_S_MAX:g} s", True)

    def _fail(self, why: str, *, is_transient: bool) -> None:
        with self._changed:
            self._error = self._error or DeliveryError(why, is_transient)
            self._changed.notify_all()

    # -- callbacks of paho ------------------------------------------------------------------------

    def _connected(self, _: Any, __: Any, ___: Any, reason: Any, ____: Any) -> None:
        if reason.is_failure:
            self._fail(f"it refuses the client: {reason}", is_transient=will_pass(reason))
            return
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    def _lost(self, *_: Any) -> None:
        self._fail("the connection is lost", is_transient=True)

    def _acknowledged(self, _: Any, __: Any, mid: int, reason: Any, ___: Any) -> None:
        if reason.is_failure:
            self._fail(f"it refuses a message: {reason}", is_transient=False)
        with self._changed:
            if mid in self._unacknowledged:
                self._unacknowledged.remove(mid)
            else:
                self._early.add(mid)
            self._changed.notify_all()


class MQTTSystem(AckingSystem[MQTTSinkConfig]):
    session = MQTTSession
    client = ERRORS
    refusal = "does not take {output}"
    ways_to_correct = "Correct the topic, the password, the rights or the certificates"

    @property
    def place(self) -> str:
        return f"MQTT broker {self._config.address}"
