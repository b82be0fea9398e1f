"""Names of the package that are loaded at their first use."""

from __future__ import annotations

import subprocess
import sys

import pytest

import wallaroo


def test_modules_of_the_package_are_reachable_after_its_import() -> None:
    program = (
        "import sys, wallaroo\n"
        "assert 'wallaroo.aggregations' not in sys.modules\n"
        "print(wallaroo.aggregations.Count.__name__, wallaroo.sinks.KafkaSinkConfig.__name__,"
        " wallaroo.sources.KafkaSourceConfig.__name__)\n"
    )

    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert finished.stdout.split() == ["Count", "KafkaSinkConfig", "KafkaSourceConfig"]


def test_a_name_that_is_not_there_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'aggregation'"):
        wallaroo.aggregation  # noqa: B018
