"""``import wallaroo`` is light."""

from __future__ import annotations

import subprocess
import sys

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
