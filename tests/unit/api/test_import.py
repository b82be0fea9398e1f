"""``import wallaroo`` is light, and so are the starts of a run's processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "pyspark",
    "pyarrow",
    "pandas",
    "numpy",
    "rich",
    "lmdb",
    "multiprocessing",
    "asyncio",
    "logging",
    "email",
    "http",
)
# the names that nearly every application uses
FIRST = (
    "import sys, wallaroo as w; w.source, w.build_application, w.state_computation, "
    "w.TCPSourceConfig, w.TCPSinkConfig"
)
# what only a run needs
LATER = (
    "metrics",
    "cli",
    "engine",
    "ingress",
    "local",
    "spark",
    "spool",
    "state",
    "testing",
    "verify",
)

# a process, and modules that it must not load at its start: few runs need them, or it later
STARTS = {
    "wallaroo.cli.main": (
        "email",
        "importlib.metadata",
        "rich",
        "wallaroo.api",
        "wallaroo.dataflow",
    ),
    "wallaroo.cli.run.command": (
        "prometheus_client",
        "pyspark",
        "rich",
    ),
    "wallaroo.cli.in_process": (
        "numpy",
        "prometheus_client",
        "pyarrow",
        "pyspark",
        "rich",
        "wallaroo.compat",
        "wallaroo.protocols.connector.frames",
    ),
    "wallaroo.ingress.__main__": (
        "logging",
        "rich",
        "wallaroo.network.proved_connections",
        "wallaroo.network.replica_link",
        "wallaroo.protocols.connector",
        "wallaroo.steps",
        "wallaroo.monitoring",
    ),
    "wallaroo.runtime.tasks.job": (
        "http",
        "psutil",
        "rich",
        "ssl",
        "wallaroo.api",
        "wallaroo.dataflow.check",
        "wallaroo.monitoring",
        "wallaroo.spool",
    ),
}


@pytest.mark.parametrize("module", STARTS)
def test_a_process_loads_at_its_start_only_what_every_run_needs(module: str) -> None:
    program = f"import sys, {module}; print([n for n in {STARTS[module]!r} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_importing_wallaroo_loads_neither_spark_nor_arrow_nor_rich() -> None:
    program = f"{FIRST}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_importing_wallaroo_loads_nothing_that_only_a_run_needs() -> None:
    program = f"{FIRST}; print([name for name in {LATER!r} if 'wallaroo.' + name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_what_few_applications_use_is_loaded_when_it_is_asked_for() -> None:
    """Given a fresh interpreter, then every exported name is there, and misspelled ones are not."""
    program = (
        "import sys, wallaroo, wallaroo.sinks, wallaroo.sources;"
        "later = ('argparse', 'subprocess', 'uuid', 'threading', 'wallaroo.connectors.sql');"
        "print([name for name in later if name in sys.modules]);"
        "modules = (wallaroo, wallaroo.sinks, wallaroo.sources);"
        "[getattr(module, name) for module in modules for name in module.__all__];"
        "print('Kafka' in str(wallaroo.KafkaSinkConfig), set(wallaroo.__all__) <= "
        "set(dir(wallaroo)));"
        "print(hasattr(wallaroo, 'sourc'), hasattr(wallaroo.sinks, 'sourc'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n") == ["[]", "True True", "False False", ""]
