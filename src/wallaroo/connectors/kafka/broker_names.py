"""The names of Kafka brokers and topics in configurations.

Where it runs: everywhere; pure, and without a client.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from wallaroo.steps.option_values import keep_dict

LOG_LEVELS = ("Fine", "Info", "Warn", "Error")  # those of Wallaroo's client


def brokers_text(brokers: str | Sequence[Any]) -> str:
    """Return ``host:port,...`` for the brokers of a configuration.

    They are such a text, or a sequence of texts and ``(host, port)`` pairs.  Raises TypeError or
    ValueError for anything else.

    >>> brokers_text([("a", 9092), "b:9093", ("c", "9094")]), brokers_text("d")
    ('a:9092,b:9093,c:9094', 'd:9092')
    """
    listed = brokers.split(",") if isinstance(brokers, str) else list(brokers)
    if not any(listed):
        raise ValueError("there is none")
    return ",".join(_with_port(broker) for broker in listed)


def check_options(config: Any) -> None:
    """Keep the options as a dict; raise WallarooParameterError if they name other brokers."""
    keep_dict(config, "options")
    for name in ("bootstrap.servers", "metadata.broker.list"):
        if config.options.get(name, config.brokers) != config.brokers:
            what = f"options name {name}, and brokers={config.brokers!r} other brokers."
            raise config._wrong(what, "Leave it out of the options.")


def _with_port(broker: Any) -> str:
    if isinstance(broker, str):
        text = broker.strip()
        return text if ":" in text else f"{text}:9092"
    host, port = broker
    return f"{host}:{port}"


def is_topic(name: Any) -> bool:
    return isinstance(name, str) and re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name) is not None


def is_among(topic: str, wanted: Sequence[str]) -> bool:
    """Return whether a source reads a topic: one of names, or of patterns that begin with ^.

    >>> [is_among(topic, ("a", "^b")) for topic in ("a", "bc", "ab", "__b")]
    [True, True, False, False]
    """
    return any(
        not topic.startswith("__") and re.search(each, topic) is not None
        if each.startswith("^")
        else each == topic
        for each in wanted
    )


def is_topic_or_pattern(name: Any) -> bool:
    """Return whether a source may read topics of this name.

    >>> [is_topic_or_pattern(name) for name in ("a", "^a.*", "^[", 5)]
    [True, True, False, False]
    """
    if not isinstance(name, str) or not name.startswith("^"):
        return is_topic(name)
    try:
        re.compile(name)
    except re.error:
        return False
    return True
