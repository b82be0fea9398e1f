"""Wallaroo's connectors: configurations, and parts of source and sink programs.

Where it runs: driver and workers; source and sink programs.
"""

from __future__ import annotations

from wallaroo.experimental import connector_wire_messages, connectors
from wallaroo.experimental.client import AtLeastOnceSourceConnector, Stream
from wallaroo.experimental.connectors import (
    BaseIter,
    BaseSource,
    FramedFileReader,
    MultiSourceConnector,
    ThrottledFileReader,
)
from wallaroo.experimental.decorators import (
    octet_message_decoder,
    octet_message_encoder,
    stream_message_decoder,
    stream_message_encoder,
)
from wallaroo.experimental.faults import ConnectorError, ProtocolError
from wallaroo.experimental.programs import (
    SinkConnector,
    SourceConnector,
    parse_connector_args,
)
from wallaroo.sinks.connector.config import SinkConnectorConfig
from wallaroo.sources.connector import SourceConnectorConfig

# fmt: off
__all__ = [
    # in an application
    "SourceConnectorConfig", "SinkConnectorConfig",
    "stream_message_decoder", "stream_message_encoder", "octet_message_decoder",
    "octet_message_encoder",
    # in a source program
    "AtLeastOnceSourceConnector", "MultiSourceConnector", "SourceConnector", "Stream",
    "BaseSource", "BaseIter", "FramedFileReader", "ThrottledFileReader",
    # in a sink program
    "SinkConnector",
    # in both
    "parse_connector_args", "ConnectorError", "ProtocolError", "connector_wire_messages",
    "connectors",
]
# fmt: on
