"""Wallaroo's Python API for stream processing, run on Apache Spark.

Where it runs: everywhere.  Importing it starts nothing and loads neither Spark nor Arrow; names
that few applications use are loaded at their first use.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from wallaroo.user_code import moved_modules
from wallaroo.user_code.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from wallaroo import aggregations as aggregations
    from wallaroo import errors as errors
    from wallaroo import serdes as serdes
    from wallaroo import sinks as sinks
    from wallaroo import sources as sources
    from wallaroo.api.addresses import (
        CustomKafkaSinkCLIParser,
        CustomKafkaSourceCLIParser,
        DefaultKafkaSinkCLIParser,
        DefaultKafkaSourceCLIParser,
        kafka_parse_sink_options,
        kafka_parse_source_options,
        tcp_parse_input_addrs,
        tcp_parse_output_addrs,
    )
    from wallaroo.api.application import Application, build_application
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
    from wallaroo.api.windows import (
        CountWindows,
        RangeWindows,
        SessionWindows,
        count_windows,
        range_windows,
        session_windows,
    )
    from wallaroo.compat.classic.builder import ApplicationBuilder
    from wallaroo.connectors.file.sink import FileSinkConfig
    from wallaroo.connectors.file.source import FileSourceConfig
    from wallaroo.connectors.kafka.sink import KafkaSinkConfig
    from wallaroo.connectors.kafka.source import KafkaSourceConfig
    from wallaroo.connectors.stdout.sink import StdoutSinkConfig
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
    from wallaroo.network.tls import TLS
    from wallaroo.options import RunHandle, RunOptions
    from wallaroo.runner import run
    from wallaroo.sources.chain import chain
    from wallaroo.sources.feeds.generator import GenSourceConfig
    from wallaroo.steps.context import Context
    from wallaroo.steps.joins.columns import with_columns
    from wallaroo.steps.kinds import (
        Computation,
        ComputationMulti,
        Decoder,
        Encoder,
        KeyExtractor,
        OctetDecoder,
        OctetEncoder,
        StateComputation,
        StateComputationMulti,
        Step,
    )
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
    _NAMES = {
        "wallaroo.api.addresses": (
            "CustomKafkaSinkCLIParser CustomKafkaSourceCLIParser DefaultKafkaSinkCLIParser "
            "DefaultKafkaSourceCLIParser kafka_parse_sink_options kafka_parse_source_options "
            "tcp_parse_input_addrs tcp_parse_output_addrs"
        ),
        "wallaroo.api.application": "Application build_application",
        "wallaroo.api.batch": (
            "arrow_ipc batch_computation batch_decoder batch_encoder batch_key_extractor "
            "batch_state_computation fixed_layout json_lines"
        ),
        "wallaroo.api.decorators": (
            "computation computation_multi decoder encoder key_extractor partition "
            "state_computation state_computation_multi"
        ),
        "wallaroo.api.pipeline": "KeyedPipeline Pipeline source",
        "wallaroo.api.serialization": "deserialize serialize",
        "wallaroo.api.times": "hours microseconds milliseconds minutes nanoseconds seconds",
        "wallaroo.api.upgrades": "upgrade",
        "wallaroo.api.windows": (
            "CountWindows RangeWindows SessionWindows count_windows range_windows session_windows"
        ),
        "wallaroo.compat.classic.builder": "ApplicationBuilder",
        "wallaroo.connectors.file.sink": "FileSinkConfig",
        "wallaroo.connectors.file.source": "FileSourceConfig",
        "wallaroo.connectors.kafka.sink": "KafkaSinkConfig",
        "wallaroo.connectors.kafka.source": "KafkaSourceConfig",
        "wallaroo.connectors.stdout.sink": "StdoutSinkConfig",
        "wallaroo.connectors.tcp.sink": "TCPSinkConfig",
        "wallaroo.connectors.tcp.source": "TCPSourceConfig",
        "wallaroo.errors": (
            "CheckpointError InternalError NotYetError PeerError PipelineError Problem "
            "UserCodeError WallarooError WallarooParameterError"
        ),
        "wallaroo.network.tls": "TLS",
        "wallaroo.options": "RunHandle RunOptions",
        "wallaroo.runner": "run",
        "wallaroo.sources.chain": "chain",
        "wallaroo.sources.feeds.generator": "GenSourceConfig",
        "wallaroo.steps.context": "Context",
        "wallaroo.steps.joins.columns": "with_columns",
        "wallaroo.steps.kinds": (
            "Computation ComputationMulti Decoder Encoder KeyExtractor OctetDecoder "
            "OctetEncoder StateComputation StateComputationMulti Step"
        ),
        "wallaroo.steps.windows.aggregation": "Aggregation",
        "wallaroo.steps.windows.spec": "Firing Window WindowResult",
        "wallaroo.steps.windows.step": "WindowStep",
        "wallaroo.vectorized.row_error": "RowError",
        "wallaroo.vectorized.steps": (
            "BatchComputation BatchDecoder BatchEncoder BatchKeyExtractor BatchStateComputation"
        ),
    }
    _HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
    _HOMES |= {
        name: f"wallaroo.{name}"
        for name in ("aggregations", "errors", "serdes", "sinks", "sources")
    }
    __getattr__ = lazy_exports(__name__, _HOMES)

moved_modules.install()

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
