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
from wallaroo.context import Context
from wallaroo.deferred import deferred
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
from wallaroo.sinks.file.config import FileSinkConfig
from wallaroo.sinks.tcp.config import TCPSinkConfig
from wallaroo.sources.file.config import FileSourceConfig
from wallaroo.sources.tcp import TCPSourceConfig
from wallaroo.steps import (
    Computation,
    ComputationMulti,
    Decoder,
    Encoder,
    KeyExtractor,
    StateComputation,
    StateComputationMulti,
    Step,
)

if TYPE_CHECKING:
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
    from wallaroo.api.classic.builder import ApplicationBuilder
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
    from wallaroo.options import RunHandle, RunOptions
    from wallaroo.runner import run
    from wallaroo.sinks.kafka.config import KafkaSinkConfig
    from wallaroo.sinks.stdout import StdoutSinkConfig
    from wallaroo.sources.generator import GenSourceConfig
    from wallaroo.sources.kafka.config import KafkaSourceConfig
    from wallaroo.tls import TLS
    from wallaroo.vectorized.row_error import RowError
    from wallaroo.vectorized.steps import (
        BatchComputation,
        BatchDecoder,
        BatchEncoder,
        BatchKeyExtractor,
        BatchStateComputation,
    )
    from wallaroo.windows.aggregation import Aggregation
    from wallaroo.windows.spec import Firing, Window
    from wallaroo.windows.step import WindowStep
else:
    __getattr__ = deferred(
        __name__,
        {
            "wallaroo.api.addresses": ("tcp_parse_input_addrs", "tcp_parse_output_addrs"),
            "wallaroo.api.batch": (
                "arrow_ipc",
                "batch_computation",
                "batch_decoder",
                "batch_encoder",
                "batch_key_extractor",
                "batch_state_computation",
                "fixed_layout",
                "json_lines",
            ),
            "wallaroo.api.classic.builder": ("ApplicationBuilder",),
            "wallaroo.api.kafka": (
                "CustomKafkaSinkCLIParser",
                "CustomKafkaSourceCLIParser",
                "DefaultKafkaSinkCLIParser",
                "DefaultKafkaSourceCLIParser",
                "kafka_parse_sink_options",
                "kafka_parse_source_options",
            ),
            "wallaroo.api.windows": (
                "CountWindows",
                "RangeWindows",
                "SessionWindows",
                "count_windows",
                "range_windows",
                "session_windows",
            ),
            "wallaroo.sinks.kafka.config": ("KafkaSinkConfig",),
            "wallaroo.sources.kafka.config": ("KafkaSourceConfig",),
            "wallaroo.options": (
                "RunHandle",
                "RunOptions",
            ),
            "wallaroo.runner": ("run",),
            "wallaroo.sources.generator": ("GenSourceConfig",),
            "wallaroo.tls": ("TLS",),
            "wallaroo.windows.aggregation": ("Aggregation",),
            "wallaroo.windows.spec": (
                "Firing",
                "Window",
            ),
            "wallaroo.windows.step": ("WindowStep",),
            "wallaroo.sinks.stdout": ("StdoutSinkConfig",),
            "wallaroo.vectorized.row_error": ("RowError",),
            "wallaroo.vectorized.steps": (
                "BatchComputation",
                "BatchDecoder",
                "BatchEncoder",
                "BatchKeyExtractor",
                "BatchStateComputation",
            ),
        },
    )

OctetDecoder = Decoder
OctetEncoder = Encoder

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
    "fixed_layout", "json_lines", "arrow_ipc", "RowError",
    "BatchComputation", "BatchStateComputation", "BatchKeyExtractor", "BatchDecoder",
    "BatchEncoder",
    # sources and sinks
    "TCPSourceConfig", "TLS", "GenSourceConfig", "FileSourceConfig", "TCPSinkConfig",
    "FileSinkConfig", "StdoutSinkConfig",
    "tcp_parse_input_addrs", "tcp_parse_output_addrs",
    # windows
    "Aggregation", "range_windows", "count_windows", "session_windows", "RangeWindows",
    "CountWindows", "SessionWindows",
    "Window", "Firing", "WindowStep",
    # time spans
    "nanoseconds", "microseconds", "milliseconds", "seconds", "minutes", "hours",
    # packing
    "serialize", "deserialize",
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
