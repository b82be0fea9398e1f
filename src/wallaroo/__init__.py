"""Wallaroo's Python API for stream processing, run on Apache Spark.

Where it runs: everywhere.  Importing it starts nothing and loads neither Spark nor Arrow; names
that few applications use are loaded at their first use.
"""

from __future__ import annotations

import sys

from wallaroo.user_code import moved_modules
from wallaroo.user_code.lazy_exports import lazy_exports

# the public names of each module, by subject, in the order of the API's page
_NAMES = {
    # build
    "wallaroo.api.pipeline": "source Pipeline KeyedPipeline",
    "wallaroo.api.application": "build_application Application",
    "wallaroo.compat.classic.builder": "ApplicationBuilder",
    # steps
    "wallaroo.api.decorators": (
        "computation computation_multi state_computation state_computation_multi key_extractor "
        "decoder encoder partition"
    ),
    "wallaroo.steps.context": "Context",
    "wallaroo.steps.kinds": (
        "Step Computation ComputationMulti StateComputation StateComputationMulti KeyExtractor "
        "Decoder Encoder OctetDecoder OctetEncoder"
    ),
    # vectorized steps
    "wallaroo.api.batch": (
        "batch_computation batch_state_computation batch_key_extractor batch_decoder batch_encoder "
        "fixed_layout json_lines arrow_ipc"
    ),
    "wallaroo.vectorized.row_error": "RowError",
    "wallaroo.steps.joins.columns": "with_columns",
    "wallaroo.vectorized.steps": (
        "BatchComputation BatchStateComputation BatchKeyExtractor BatchDecoder BatchEncoder"
    ),
    # sources and sinks
    "wallaroo.connectors.tcp.source": "TCPSourceConfig",
    "wallaroo.network.tls": "TLS",
    "wallaroo.sources.feeds.generator": "GenSourceConfig",
    "wallaroo.connectors.file.source": "FileSourceConfig",
    "wallaroo.connectors.tcp.sink": "TCPSinkConfig",
    "wallaroo.connectors.file.sink": "FileSinkConfig",
    "wallaroo.connectors.stdout.sink": "StdoutSinkConfig",
    "wallaroo.api.addresses": "tcp_parse_input_addrs tcp_parse_output_addrs",
    "wallaroo.sources.chain": "chain",
    # windows
    "wallaroo.steps.windows.aggregation": "Aggregation",
    "wallaroo.api.windows": (
        "range_windows count_windows session_windows RangeWindows CountWindows SessionWindows"
    ),
    "wallaroo.steps.windows.spec": "Window WindowResult Firing",
    "wallaroo.steps.windows.step": "WindowStep",
    # time spans
    "wallaroo.api.times": "nanoseconds microseconds milliseconds seconds minutes hours",
    # packing, and state of an earlier version
    "wallaroo.api.serialization": "serialize deserialize",
    "wallaroo.api.upgrades": "upgrade",
    # run
    "wallaroo.runner": "run",
    "wallaroo.options": "RunOptions RunHandle",
    # errors
    "wallaroo.errors": (
        "WallarooError PipelineError WallarooParameterError NotYetError UserCodeError PeerError "
        "CheckpointError InternalError Problem"
    ),
    # Kafka
    "wallaroo.connectors.kafka.source": "KafkaSourceConfig",
    "wallaroo.connectors.kafka.sink": "KafkaSinkConfig",
    "wallaroo.api.kafka": (
        "DefaultKafkaSourceCLIParser DefaultKafkaSinkCLIParser CustomKafkaSourceCLIParser "
        "CustomKafkaSinkCLIParser kafka_parse_source_options kafka_parse_sink_options"
    ),
}
HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = [*HOMES]
HOMES |= {
    name: f"wallaroo.{name}" for name in ("aggregations", "errors", "serdes", "sinks", "sources")
}
__getattr__ = lazy_exports(__name__, HOMES)

moved_modules.install()

# The complete command line, as in Wallaroo; the command line program replaces it.  Applications
# search it for '--cluster-initializer' to do something on one worker only: here application_setup
# runs in one process, which is that one.
_ARGS: tuple[str, ...] = (*sys.argv, "--cluster-initializer")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
