"""Wallaroo's connectors: configurations, and parts of source and sink programs.

Where it runs: driver and workers; source and sink programs.
"""

from wallaroo.compat.programs import connector_wire_messages, connectors
from wallaroo.compat.programs.client import AtLeastOnceSourceConnector, Stream
from wallaroo.compat.programs.connectors import (
    BaseIter,
    BaseSource,
    FramedFileReader,
    MultiSourceConnector,
    ThrottledFileReader,
)
from wallaroo.compat.programs.faults import ConnectorError, ProtocolError
from wallaroo.compat.programs.programs import (
    SinkConnector,
    SourceConnector,
    octet_message_decoder,
    octet_message_encoder,
    parse_connector_args,
    stream_message_decoder,
    stream_message_encoder,
)
from wallaroo.compat.sink.config import SinkConnectorConfig
from wallaroo.compat.source import SourceConnectorConfig

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
