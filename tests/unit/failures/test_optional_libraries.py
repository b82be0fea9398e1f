"""Libraries that are not installed by default: an error names the command that installs one."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from wallaroo.connectors import CONNECTORS
from wallaroo.errors import PeerError, WallarooParameterError, optional_library
from wallaroo.serdes import serde

ROOT = Path(__file__).parents[3]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def libraries() -> Iterator[tuple[str, str]]:
    """Each configuration with the library that it names, as pip is given it."""
    for system, connector in CONNECTORS.items():
        for entry in (*connector.sources, *connector.sinks):
            module, _, name = entry.partition(":")
            config = getattr(
                importlib.import_module(f"wallaroo.connectors.{system}.{module}"), name
            )
            library = getattr(config, "library", "")
            if library:
                yield name, library if isinstance(library, str) else library[0]


@pytest.mark.parametrize(("config", "library"), [*libraries()])
def test_what_a_connector_names_is_what_an_extra_installs(config: str, library: str) -> None:
    projects = {
        re.split(r"[\[>=<]", requirement)[0] for extra in EXTRAS.values() for requirement in extra
    }

    assert library.partition("[")[0] in projects, config


def test_a_missing_library_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(PeerError) as raised, optional_library("Sink 'out'", "paho-mqtt"):
        raise ImportError("No module named 'paho'")

    assert str(raised.value) == (
        "Sink 'out' needs paho-mqtt, which cannot be imported: No module named 'paho'. Install it "
        f"where the driver runs: {sys.executable} -m pip install paho-mqtt"
    )


def test_a_serde_without_its_library_is_refused_with_that_command() -> None:
    error = serde.missing("Avro", "fastavro", ImportError("No module named 'fastavro'"))

    assert isinstance(error, WallarooParameterError)
    assert str(error).endswith(
        f"Install it wherever the driver and workers run: {sys.executable} -m pip install fastavro"
    )
