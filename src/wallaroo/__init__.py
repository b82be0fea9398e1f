"""Wallaroo's Python API for stream processing, run on Apache Spark.

Where it runs: everywhere.  Importing it starts nothing and loads neither Spark nor Arrow; names
that few applications use are loaded at their first use.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from wallaroo.api.application import Application, build_application
from wallaroo.api.decorators import (
    computation,
    computation_multi,
    decoder,
    encoder,
    key_extractor,
    partition,
    state_computation,
    state_computation_multi,
)
from wallaroo.api.pipeline import KeyedPipeline, Pipeline, source
from wallaroo.api.serialization import deserialize, serialize
from wallaroo.api.times import hours, microseconds, milliseconds, minutes, nanoseconds, seconds
from wallaroo.api.upgrades import upgrade
from wallaroo.connectors.file.sink import FileSinkConfig
from wallaroo.connectors.file.source import FileSourceConfig
from wallaroo.connectors.tcp.sink import TCPSinkConfig
from wallaroo.connectors.tcp.source import TCPSourceConfig
from wallaroo.errors import (
    CheckpointError,
    InternalError,
    NotYetError,
    PeerError,
    PipelineError,
    Problem,
    UserCodeError,
    WallarooError,
    WallarooParameterError,
)
from wallaroo.steps.context import Context
from wallaroo.steps.kinds import (
    Computation,
    ComputationMulti,
    Decoder,
    Encoder,
    KeyExtractor,
    StateComputation,
    StateComputationMulti,
    Step,
)
from wallaroo.user_code import moved_modules
from wallaroo.user_code.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from wallaroo import aggregations as aggregations
    from wallaroo import serdes as serdes
    from wallaroo import sinks as sinks
    from wallaroo import sources as sources
    from wallaroo.api.addresses import tcp_parse_input_addrs, tcp_parse_output_addrs
    from wallaroo.api.batch import (
        arrow_ipc,
        batch_computation,
        batch_decoder,
        batch_encoder,
        batch_key_extractor,
        batch_state_computation,
        fixed_layout,
        json_lines,
    )
    from wallaroo.api.kafka import (
        CustomKafkaSinkCLIParser,
        CustomKafkaSourceCLIParser,
        DefaultKafkaSinkCLIParser,
        DefaultKafkaSourceCLIParser,
        kafka_parse_sink_options,
        kafka_parse_source_options,
    )
    from wallaroo.api.windows import (
        CountWindows,
        RangeWindows,
        SessionWindows,
        count_windows,
        range_windows,
        session_windows,
    )
    from wallaroo.compat.classic.builder import ApplicationBuilder
    from wallaroo.connectors.kafka.sink import KafkaSinkConfig
    from wallaroo.connectors.kafka.source import KafkaSourceConfig
    from wallaroo.connectors.stdout.sink import StdoutSinkConfig
    from wallaroo.network.tls import TLS
    from wallaroo.options import RunHandle, RunOptions
    from wallaroo.runner import run
    from wallaroo.sources.chain import chain
    from wallaroo.sources.feeds.generator import GenSourceConfig
    from wallaroo.steps.joins.columns import with_columns
    from wallaroo.steps.windows.aggregation import Aggregation
    from wallaroo.steps.windows.spec import Firing, Window, WindowResult
    from wallaroo.steps.windows.step import WindowStep
    from wallaroo.vectorized.row_error import RowError
    from wallaroo.vectorized.steps import (
        BatchComputation,
        BatchDecoder,
        BatchEncoder,
        BatchKeyExtractor,
        BatchStateComputation,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "aggregations": "wallaroo.aggregations",
            "serdes": "wallaroo.serdes",
            "sinks": "wallaroo.sinks",
            "sources": "wallaroo.sources",
            "tcp_parse_input_addrs": "wallaroo.api.addresses",
            "tcp_parse_output_addrs": "wallaroo.api.addresses",
            "arrow_ipc": "wallaroo.api.batch",
            "batch_computation": "wallaroo.api.batch",
            "batch_decoder": "wallaroo.api.batch",
            "batch_encoder": "wallaroo.api.batch",
            "batch_key_extractor": "wallaroo.api.batch",
            "batch_state_computation": "wallaroo.api.batch",
            "fixed_layout": "wallaroo.api.batch",
            "with_columns": "wallaroo.steps.joins.columns",
            "json_lines": "wallaroo.api.batch",
            "ApplicationBuilder": "wallaroo.compat.classic.builder",
            "CustomKafkaSinkCLIParser": "wallaroo.api.kafka",
            "CustomKafkaSourceCLIParser": "wallaroo.api.kafka",
            "DefaultKafkaSinkCLIParser": "wallaroo.api.kafka",
            "DefaultKafkaSourceCLIParser": "wallaroo.api.kafka",
            "kafka_parse_sink_options": "wallaroo.api.kafka",
            "kafka_parse_source_options": "wallaroo.api.kafka",
            "CountWindows": "wallaroo.api.windows",
            "RangeWindows": "wallaroo.api.windows",
            "SessionWindows": "wallaroo.api.windows",
            "count_windows": "wallaroo.api.windows",
            "range_windows": "wallaroo.api.windows",
            "session_windows": "wallaroo.api.windows",
            "KafkaSinkConfig": "wallaroo.connectors.kafka.sink",
            "KafkaSourceConfig": "wallaroo.connectors.kafka.source",
            "RunHandle": "wallaroo.options",
            "RunOptions": "wallaroo.options",
            "run": "wallaroo.runner",
            "chain": "wallaroo.sources.chain",
            "GenSourceConfig": "wallaroo.sources.feeds.generator",
            "TLS": "wallaroo.network.tls",
            "Aggregation": "wallaroo.steps.windows.aggregation",
            "Firing": "wallaroo.steps.windows.spec",
            "Window": "wallaroo.steps.windows.spec",
            "WindowResult": "wallaroo.steps.windows.spec",
            "WindowStep": "wallaroo.steps.windows.step",
            "StdoutSinkConfig": "wallaroo.connectors.stdout.sink",
            "RowError": "wallaroo.vectorized.row_error",
            "BatchComputation": "wallaroo.vectorized.steps",
            "BatchDecoder": "wallaroo.vectorized.steps",
            "BatchEncoder": "wallaroo.vectorized.steps",
            "BatchKeyExtractor": "wallaroo.vectorized.steps",
            "BatchStateComputation": "wallaroo.vectorized.steps",
        },
    )

moved_modules.install()

OctetDecoder = Decoder
"""``Decoder``, as Wallaroo named it."""
OctetEncoder = Encoder
"""``Encoder``, as Wallaroo named it."""

# The complete command line, as in Wallaroo; the command line program replaces it.  Applications
# search it for '--cluster-initializer' to do something on one worker only: here application_setup
# runs in one process, which is that one.
_ARGS: tuple[str, ...] = (*sys.argv, "--cluster-initializer")

# fmt: off
__all__ = [
    # build
    "source", "Pipeline", "KeyedPipeline", "build_application", "Application", "ApplicationBuilder",
    # steps
    "computation", "computation_multi", "state_computation", "state_computation_multi",
    "key_extractor", "decoder", "encoder",
    "Context", "Step", "Computation", "ComputationMulti", "StateComputation",
    "StateComputationMulti", "KeyExtractor", "Decoder", "Encoder",
    "OctetDecoder", "OctetEncoder",
    # vectorized steps
    "batch_computation", "batch_state_computation", "batch_key_extractor", "batch_decoder",
    "batch_encoder",
    "fixed_layout", "json_lines", "arrow_ipc", "RowError", "with_columns",
    "BatchComputation", "BatchStateComputation", "BatchKeyExtractor", "BatchDecoder",
    "BatchEncoder",
    # sources and sinks
    "TCPSourceConfig", "TLS", "GenSourceConfig", "FileSourceConfig", "TCPSinkConfig",
    "FileSinkConfig", "StdoutSinkConfig",
    "tcp_parse_input_addrs", "tcp_parse_output_addrs", "chain",
    # windows
    "Aggregation", "range_windows", "count_windows", "session_windows", "RangeWindows",
    "CountWindows", "SessionWindows",
    "Window", "WindowResult", "Firing", "WindowStep",
    # time spans
    "nanoseconds", "microseconds", "milliseconds", "seconds", "minutes", "hours",
    # packing
    "serialize", "deserialize",
    # state of an earlier version
    "upgrade",
    # run
    "run", "RunOptions", "RunHandle",
    # errors
    "WallarooError", "PipelineError", "WallarooParameterError", "NotYetError",
    "UserCodeError", "PeerError", "CheckpointError",
    "InternalError", "Problem",
    # Kafka
    "KafkaSourceConfig", "KafkaSinkConfig", "DefaultKafkaSourceCLIParser",
    "DefaultKafkaSinkCLIParser", "CustomKafkaSourceCLIParser", "CustomKafkaSinkCLIParser",
    "kafka_parse_source_options",
    "kafka_parse_sink_options", "partition",
]
# fmt: on


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
