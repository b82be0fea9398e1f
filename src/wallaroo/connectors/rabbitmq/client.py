"""RabbitMQ connections with our defaults, and their errors' meaning for runs."""

from __future__ import annotations

import logging
import re
from typing import Any

import pika
from pika import exceptions
from pika.adapters.utils.connection_workflow import AMQPConnectorException

from wallaroo.network.client_errors import ClientErrors, is_untrusted, sentence_of

TIMEOUT_S = 10.0
_LASTING = (
    exceptions.AMQPChannelError,  # no such queue or exchange, no rights
    exceptions.AuthenticationError,
    exceptions.ProbableAccessDeniedError,
    exceptions.ProbableAuthenticationError,
    exceptions.ShortStringTooLong,  # a name or a routing key
)
_PIKA = logging.getLogger("pika")
if _PIKA.level == logging.NOTSET:
    # it logs seven errors per attempt to connect; a run reports its wait once
    _PIKA.setLevel(logging.CRITICAL)
_is_timeout = re.compile("Timeout (during|while setting up) ").search
_NOT_NOW = (320, 541, 506)  # codes of a server that is stopping, failing or out of resources


def parameters_of(url: str, *, has_heartbeats: bool) -> Any:
    """Return connection parameters.  Raises ValueError for an address that cannot be read.

    Without heartbeats the connection's thread may be busy elsewhere for any time.
    """
    parameters = pika.URLParameters(url)
    parameters.socket_timeout = TIMEOUT_S
    parameters.stack_timeout = TIMEOUT_S
    parameters.blocked_connection_timeout = None
    if not has_heartbeats:
        parameters.heartbeat = 0
    return parameters


def _is_transient(error: Exception) -> bool:
    code = getattr(error, "reply_code", None)
    return code in _NOT_NOW or not (isinstance(error, _LASTING) or is_untrusted(error))


def _sentence(error: Exception) -> str:
    """Return an error on one line, in the server's words if there are any."""
    words = getattr(error, "reply_text", "")
    if not words and isinstance(error, exceptions.AMQPConnectionError) and error.args:
        words = repr(error.args[0]) if not isinstance(error.args[0], str) else error.args[0]
    words = " ".join(words.split()) or sentence_of(error)
    # with the client's own drawing of the address
    return "no answer" if _is_timeout(words) else words


# pika raises the last one if TLS's or AMQP's handshake takes too long
ERRORS = ClientErrors(
    (exceptions.AMQPError, OSError, AMQPConnectorException), _is_transient, _sentence
)
