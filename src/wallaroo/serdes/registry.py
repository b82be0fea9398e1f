"""Schema registries: payloads that begin with the id of their schema.

Where it runs: everywhere; the process that decodes or encodes asks for ids and schemas over HTTP,
once each.  It imports confluent-kafka's client of registries when it asks.

The format (Confluent's wire format): the byte 0, the schema's id (u32, big endian), the payload.
In Protobuf the payload begins with the place of the message in its file: a count and as many
numbers, as zigzag varints, or the byte 0 for the first message.

The invariant: a fault that is not about one event is not an error of that event.  While the
registry is unavailable the step waits, and then raises PeerError, which ends the run regardless of
``on_error``.
"""

from __future__ import annotations

import importlib
import logging
import struct
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from wallaroo.errors import PeerError, Problem, WallarooParameterError
from wallaroo.serdes.serde import Codec, missing

LOGGER = logging.getLogger("wallaroo.serdes.registry")
WAIT_S = 60.0
RETRY_S = 1.0
MAGIC = 0
HEAD = struct.Struct(">BI")
_PASSING = (408, 425, 429)  # statuses; and 5xx
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A schema registry, for ``schema_registry=`` of `Avro`, `Json` and `Protobuf`.

    ``url`` is the address, or several, separated by commas.  ``subject`` is the one that encoders
    write under (``"orders-value"``: the values of topic ``orders``); decoders need none.  With
    ``register`` the serde's schema is registered there before the first output, unless it already
    is; without it, the subject's latest version is used.  ``options`` are those of
    confluent-kafka's client (``basic.auth.user.info``, ``ssl.ca.location``).  While the registry is
    unavailable a step waits for ``wait_s``, then the run ends.  Needs
    confluent-kafka[schemaregistry] wherever workers run.
    """

    url: str = field(repr=False)  # may hold a password
    subject: str = ""
    register: bool = True
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    wait_s: float = WAIT_S

    def __post_init__(self) -> None:
        parts = str(self.url).split(",")
        if not all(part.strip().startswith(("http://", "https://")) for part in parts):
            raise WallarooParameterError(
                Problem(
                    "SchemaRegistry",
                    "",
                    "The url is not an address.",
                    "Give http://host:port, or https://.",
                )
            )
        object.__setattr__(self, "options", dict(self.options))

    @property
    def place(self) -> str:
        """Return the registry's address for errors: without passwords."""
        return ", ".join(
            part.strip().rpartition("@")[2].partition("://")[2] or part.strip().rpartition("@")[2]
            for part in str(self.url).split(",")
        )


class Schemas:
    """A process's view of a registry."""

    def __init__(self, registry: SchemaRegistry):
        self._registry = registry

    def text_of(self, number: int, kind: str) -> str:
        """Return a schema.  Raises ValueError if the registry has none of this id and kind."""
        client = _client_of(self._registry)
        try:
            schema = self._asked(lambda: client.get_schema(number))
        except _RefusedError as error:
            if error.status == 404:
                raise ValueError(
                    f"schema {number} is not in the schema registry {self._registry.place}"
                ) from None
            raise self._refused(f"to show schema {number}", error) from None
        if (schema.schema_type or kind) != kind:
            raise ValueError(
                f"schema {number} of the schema registry {self._registry.place} is one of "
                f"{schema.schema_type}, not of {kind}"
            )
        if schema.references:
            raise PeerError(
                f"Schema {number} of schema registry {self._registry.place} refers to others, "
                f"which is not supported. Register one that contains them."
            )
        return str(schema.schema_str)

    def register(self, text: str, kind: str) -> int:
        """Return the id of a schema of the subject; register it if necessary."""
        client = _client_of(self._registry)
        subject = self._registry.subject
        schema = _library().Schema(text, kind)
        try:
            number = self._asked(lambda: client.register_schema(subject, schema))
        except _RefusedError as error:
            raise self._refused(f"the schema of subject '{subject}'", error) from None
        return int(number)

    def latest(self) -> tuple[int, str]:
        """Return the id and the text of the subject's latest version."""
        client = _client_of(self._registry)
        subject = self._registry.subject
        try:
            found = self._asked(lambda: client.get_latest_version(subject))
        except _RefusedError as error:
            raise self._refused(f"subject '{subject}'", error) from None
        return int(found.schema_id), str(found.schema.schema_str)

    def _asked(self, ask: Callable[[], Answer]) -> Answer:
        """Ask until there is an answer.  Raises _RefusedError or PeerError."""
        refusal = _library().SchemaRegistryError
        registry = self._registry
        until = time.monotonic() + registry.wait_s
        is_reported = False
        while True:
            try:
                return ask()
            except refusal as error:
                status = error.http_status_code
                if status < 500 and status not in _PASSING:
                    raise _RefusedError(status, str(error.error_message)) from None
                words = f"answer {status}"
            except Exception as error:  # noqa: BLE001  # from an HTTP library that is not ours
                words = " ".join(str(error).split()) or type(error).__name__
            if time.monotonic() > until:
                raise PeerError(
                    f"Schema registry {registry.place} did not answer for {registry.wait_s:g} s: "
                    f"{words}. Start it, or correct SchemaRegistry(url=...), then run again."
                )
            if not is_reported:
                LOGGER.warning("Waiting for schema registry %s: %s", registry.place, words)
                is_reported = True
            time.sleep(min(RETRY_S, registry.wait_s))

    def _refused(self, what: str, error: _RefusedError) -> PeerError:
        return PeerError(
            f"Schema registry {self._registry.place} refuses {what}: {error}. Correct the schema, "
            f"the subject or the login, then run again."
        )


class _RefusedError(Exception):
    """An answer that a retry would not change."""

    def __init__(self, status: int, words: str):
        super().__init__(status, words)
        self.status = status

    def __str__(self) -> str:
        status, words = self.args
        return f"{words} (answer {status})"


def _library() -> Any:
    """Import confluent-kafka's client of registries, which is optional."""
    return importlib.import_module("confluent_kafka.schema_registry")


def _client_of(registry: SchemaRegistry) -> Any:
    return _client(registry.url, tuple(sorted(registry.options.items())))


@cache
def _client(url: str, options: tuple[tuple[str, Any], ...]) -> Any:
    """Return this process's client, which keeps the schemas that it has seen."""
    # we retry ourselves
    return _library().SchemaRegistryClient({"url": url, "max.retries": 0, **dict(options)})


class RegisteredCodec(Codec):
    """A codec of payloads after their schema's id; subclasses define what follows."""

    schema_kind = ""  # the registry's name for it

    def __init__(self, registry: SchemaRegistry, *arguments: Any):
        super().__init__(registry, *arguments)
        self._registry = registry
        self._schemas = Schemas(registry)
        # by the first five bytes
        self._readers: dict[bytes, Callable[[Any], Any]] = {}
        self._writer: tuple[bytes, Callable[[Any], bytes]] | None = None

    @abstractmethod
    def schema_text(self) -> str:
        """Return the schema that is registered, empty if there is none."""

    @abstractmethod
    def reader(self, number: int) -> Callable[[Any], Any]:
        """Return a function that decodes the payloads of a schema."""

    @abstractmethod
    def writer(self, text: str) -> Callable[[Any], bytes]:
        """Return a function that encodes events as payloads of a schema."""

    def check_encoder(self, label: str) -> None:
        """Raise WallarooParameterError if nothing can be encoded."""
        if not self._registry.subject:
            raise WallarooParameterError(
                Problem(
                    label,
                    "",
                    "The schema registry's subject is not named.",
                    "Write SchemaRegistry(url, subject='orders-value'), say.",
                )
            )
        if self._registry.register and not self.schema_text():
            raise WallarooParameterError(
                Problem(
                    label,
                    "",
                    "There is no schema to register.",
                    "Give one as schema=, or write SchemaRegistry(..., register=False): then the "
                    "subject's latest version is used.",
                )
            )

    def decode(self, payload: Any) -> Any:
        head = bytes(payload[: HEAD.size])
        read = self._readers.get(head)
        if read is None:
            read = self._readers[head] = self.reader(_number_of(head))
        return read(payload[HEAD.size :])

    def encode(self, event: Any) -> bytes:
        if self._writer is None:
            if self._registry.register:
                text = self.schema_text()
                number = self._schemas.register(text, self.schema_kind)
            else:
                number, text = self._schemas.latest()
            self._writer = HEAD.pack(MAGIC, number), self.writer(text)
        head, write = self._writer
        return head + write(event)


def _number_of(head: bytes) -> int:
    if len(head) < HEAD.size or head[0] != MAGIC:
        raise ValueError(
            f"the payload does not begin with the id of a schema (0 and four bytes), but with "
            f"{head.hex(' ') or 'nothing'}: it was written without a schema registry"
        )
    return int(HEAD.unpack(head)[1])


def check_client(format_name: str) -> None:
    """Raise WallarooParameterError if the client of registries is missing."""
    try:
        _library()
    except ImportError as error:
        raise missing(format_name, "confluent-kafka[schemaregistry]", error) from error
