"""Wallaroo's connector names; calling one says that it comes in a later version.

Where it runs: driver, while an application is built.
"""

from __future__ import annotations

from wallaroo.api.not_yet import CONNECTORS, not_yet

SourceConnectorConfig = not_yet("experimental.SourceConnectorConfig", CONNECTORS)
SinkConnectorConfig = not_yet("experimental.SinkConnectorConfig", CONNECTORS)
stream_message_decoder = not_yet("experimental.stream_message_decoder", CONNECTORS)
stream_message_encoder = not_yet("experimental.stream_message_encoder", CONNECTORS)
octet_message_decoder = not_yet("experimental.octet_message_decoder", CONNECTORS)
octet_message_encoder = not_yet("experimental.octet_message_encoder", CONNECTORS)
parse_connector_args = not_yet("experimental.parse_connector_args", CONNECTORS)
AtLeastOnceSourceConnector = not_yet("experimental.AtLeastOnceSourceConnector", CONNECTORS)
SourceConnector = not_yet("experimental.SourceConnector", CONNECTORS)
SinkConnector = not_yet("experimental.SinkConnector", CONNECTORS)
source_connector = not_yet("experimental.source_connector", CONNECTORS)
sink_connector = not_yet("experimental.sink_connector", CONNECTORS)
