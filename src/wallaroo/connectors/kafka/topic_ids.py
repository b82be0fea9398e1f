"""Kafka topic ids and a user's rights on topics.

Where it runs: driver.

A topic that was deleted and created again has another id.

confluent-kafka queries both with its administration client alone, which runs Python in a thread of
librdkafka (see `wallaroo.connectors.kafka.client`).  So this module calls the functions of the
librdkafka that confluent-kafka has loaded: they put the answer into a queue, and no callback is
involved.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, cimpl

CONSUMER = 1  # a value of rd_kafka_type_t: the options are a consumer's
ANY_OPERATION = 0  # a value of rd_kafka_admin_op_t
ERROR_BYTES = 512
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # zeros: brokers before 2.8
# values of rd_kafka_AclOperation_t
READ = 3
WRITE = 4

Fact = TypeVar("Fact")
_POINTER = ctypes.c_void_p
_POINTERS = ctypes.POINTER(ctypes.c_void_p)
_SIZE = ctypes.c_size_t
_COUNT = ctypes.POINTER(ctypes.c_size_t)
_INT = ctypes.c_int
_TEXT = ctypes.c_char_p
# declarations of rdkafka.h: name -> result, arguments
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "conf_new": (_POINTER,),
    "conf_set": (_INT, _POINTER, _TEXT, _TEXT, _TEXT, _SIZE),
    "conf_set_log_cb": (None, _POINTER, _POINTER),
    "conf_destroy": (None, _POINTER),
    "new": (_POINTER, _INT, _POINTER, _TEXT, _SIZE),
    "destroy": (None, _POINTER),
    "queue_new": (_POINTER, _POINTER),
    "queue_poll": (_POINTER, _POINTER, _INT),
    "queue_destroy": (None, _POINTER),
    "AdminOptions_new": (_POINTER, _POINTER, _INT),
    "AdminOptions_set_request_timeout": (_INT, _POINTER, _INT, _TEXT, _SIZE),
    "AdminOptions_set_include_authorized_operations": (_POINTER, _POINTER, _INT),
    "AdminOptions_destroy": (None, _POINTER),
    "TopicCollection_of_topic_names": (_POINTER, ctypes.POINTER(_TEXT), _SIZE),
    "TopicCollection_destroy": (None, _POINTER),
    "DescribeTopics": (None, _POINTER, _POINTER, _POINTER, _POINTER),
    "event_error": (_INT, _POINTER),
    "event_destroy": (None, _POINTER),
    "event_DescribeTopics_result": (_POINTER, _POINTER),
    "DescribeTopics_result_topics": (_POINTERS, _POINTER, _COUNT),
    "TopicDescription_name": (_TEXT, _POINTER),
    "TopicDescription_error": (_POINTER, _POINTER),
    "TopicDescription_topic_id": (_POINTER, _POINTER),
    "TopicDescription_authorized_operations": (ctypes.POINTER(_INT), _POINTER, _COUNT),
    "error_code": (_INT, _POINTER),
    "Uuid_base64str": (_TEXT, _POINTER),
}


class _Librdkafka:
    """The functions of librdkafka, without their prefix."""

    def __init__(self) -> None:
        """Load the functions.  Raises AttributeError for a library that is too old."""
        library = ctypes.CDLL(cimpl.__file__)
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(library, f"rd_kafka_{name}")
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


class TopicIds:
    """A client that queries topics' ids; may be used by several threads."""

    def __init__(self, configuration: Mapping[str, Any], request_s: float):
        """Create a client from the texts of another one's ``configuration``."""
        self._request_ms = int(request_s * 1000)
        self._library = _Librdkafka()
        self._client = self._opened(configuration)
        weakref.finalize(self, self._library.destroy, self._client).atexit = False

    def of(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the topics' ids, as far as known.  KafkaException: no answer."""
        names = [topic.encode() for topic in topics]
        return dict(self._described(names, self._id, with_rights=False)) if names else {}

    def rights(self, topic: str) -> set[int]:
        """Return the operations that the user may do on a topic; none if it is not known.

        KafkaException: no answer.
        """
        described = self._described([topic.encode()], self._operations, with_rights=True)
        return {operation for _, operations in described for operation in operations}

    def _described(
        self, names: list[bytes], fact: Callable[[int], Fact | None], *, with_rights: bool
    ) -> Iterator[tuple[str, Fact]]:
        """Yield the names of known topics, with one fact of each description."""
        with self._queue() as queue, self._options(with_rights) as options:
            array = (_TEXT * len(names))(*names)
            collection = self._library.TopicCollection_of_topic_names(array, len(names))
            self._library.DescribeTopics(self._client, collection, options, queue)
            self._library.TopicCollection_destroy(collection)
            # the client may answer after the request's time has passed
            event = self._library.queue_poll(queue, 2 * self._request_ms)
            if not event:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            try:
                yield from self._facts_in(event, fact)
            finally:
                self._library.event_destroy(event)

    def _facts_in(
        self, event: int, fact: Callable[[int], Fact | None]
    ) -> Iterator[tuple[str, Fact]]:
        code = self._library.event_error(event)
        if code:
            raise KafkaException(KafkaError(code))
        result = self._library.event_DescribeTopics_result(event)
        count = ctypes.c_size_t()
        topics = self._library.DescribeTopics_result_topics(result, ctypes.byref(count))
        for topic in topics[: count.value]:
            if self._library.error_code(self._library.TopicDescription_error(topic)):
                continue
            value = fact(topic)
            if value is not None:
                yield self._library.TopicDescription_name(topic).decode(), value

    def _id(self, topic: int) -> str | None:
        uuid = self._library.TopicDescription_topic_id(topic)
        text: str = self._library.Uuid_base64str(uuid).decode("ascii")
        return None if text == NO_ID else text

    def _operations(self, topic: int) -> set[int]:
        count = ctypes.c_size_t()
        described = self._library.TopicDescription_authorized_operations
        operations = described(topic, ctypes.byref(count))
        return set(operations[: count.value])

    def _opened(self, configuration: Mapping[str, Any]) -> int:
        library = self._library
        why = ctypes.create_string_buffer(ERROR_BYTES)
        conf = library.conf_new()
        for name, value in configuration.items():
            if isinstance(value, str | int | float):
                text = str(value).lower() if isinstance(value, bool) else str(value)
                if library.conf_set(conf, name.encode(), text.encode(), why, ERROR_BYTES):
                    library.conf_destroy(conf)
                    raise KafkaException(KafkaError(KafkaError._INVALID_ARG, why.value.decode()))
        library.conf_set_log_cb(conf, None)  # the consumer of the same brokers already logs
        client = library.new(CONSUMER, conf, why, ERROR_BYTES)
        if not client:
            library.conf_destroy(conf)
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, why.value.decode()))
        return int(client)

    @contextmanager
    def _queue(self) -> Iterator[int]:
        queue = self._library.queue_new(self._client)
        try:
            yield queue
        finally:
            self._library.queue_destroy(queue)

    @contextmanager
    def _options(self, with_rights: bool) -> Iterator[int]:
        library = self._library
        options = library.AdminOptions_new(self._client, ANY_OPERATION)
        why = ctypes.create_string_buffer(ERROR_BYTES)
        library.AdminOptions_set_request_timeout(options, self._request_ms, why, ERROR_BYTES)
        if with_rights:
            library.AdminOptions_set_include_authorized_operations(options, 1)
        try:
            yield options
        finally:
            library.AdminOptions_destroy(options)
