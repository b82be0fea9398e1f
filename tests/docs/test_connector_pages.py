"""Every system has a page with each of its options, in the form that all such pages have."""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from wallaroo.connectors import CONNECTORS, Connector

ROOT = Path(__file__).parents[2]
OVERVIEW = ROOT / "docs" / "connectors.md"
FOLDER = ROOT / "docs" / "connectors"
# These are in `import wallaroo` itself, and in no table.
IN_THE_FACE = {
    "file": Connector(("source:FileSourceConfig",), ("sink:FileSinkConfig",)),
    "stdout": Connector((), ("sink:StdoutSinkConfig",)),
    "tcp": Connector(("source:TCPSourceConfig",), ("sink:TCPSinkConfig",)),
}
SYSTEMS = {
    system: connector
    for system, connector in {**CONNECTORS, **IN_THE_FACE}.items()
    if any("Config" in entry for entry in (*connector.sources, *connector.sinks))
}
TOGETHER = {"stdout": "function"}  # systems that share another one's page


def page_of(system: str) -> str:
    name = system.rpartition(".")[2]
    return (FOLDER / f"{TOGETHER.get(name, name)}.md").read_text()


def configurations(system: str) -> Iterator[type]:
    for entry in (*SYSTEMS[system].sources, *SYSTEMS[system].sinks):
        module, _, name = entry.partition(":")
        if name.endswith("Config"):
            yield getattr(importlib.import_module(f"wallaroo.connectors.{system}.{module}"), name)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_page_names_every_option_of_its_system(system: str) -> None:
    page = page_of(system)
    for config in configurations(system):
        named = set(re.findall(r"`(\w+)(?:=[^`]*)?`", page))
        options = {field.name for field in dataclasses.fields(config) if field.init}
        assert options - named - {"encoder" if system == "stdout" else ""} == set(), config


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_page_states_the_guarantee_outages_and_identity_checks(system: str) -> None:
    page = page_of(system)
    assert re.search(r"^\| .*\| guarantee \| because \|$", page, re.MULTILINE)
    for title in ("In an outage", "Identity checks"):
        assert re.search(rf"^##+ {title}$", page, re.MULTILINE), title


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_overview_names_the_systems_configurations_and_links_its_page(system: str) -> None:
    overview = OVERVIEW.read_text()
    name = system.rpartition(".")[2]
    assert f"(connectors/{TOGETHER.get(name, name)}.md)" in overview
    for config in configurations(system):
        assert f"`{config.__name__}`" in overview


# Defaults that are no choice of the reader: arguments of Wallaroo's that limit nothing here.
WITHOUT_EFFECT = {"valid", "parallelism", "max_received_count"}


def forms_of(default: object) -> set[str]:
    """Return the ways in which a page may write a default; none if it need not name it."""
    if isinstance(default, bool) or not default:
        return set()
    if isinstance(default, int) and default >= 2**20:
        return {f"{default // 2**20} MiB"}
    if isinstance(default, int | float):
        return {f"{default:g}", f"{default:,}"}
    return {default} if isinstance(default, str) else set()


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_page_has_the_default_of_every_option(system: str) -> None:
    """In the paragraph or row that names the option."""
    paragraphs = re.split(r"\n\n|\n(?=\|)", page_of(system))
    for config in configurations(system):
        for option in dataclasses.fields(config):
            forms = forms_of(option.default) if option.init else set()
            if not forms or option.name in WITHOUT_EFFECT:
                continue
            rows = [text for text in paragraphs if re.search(rf"`{option.name}\b", text)]
            pattern = "|".join(rf"(?<![\w.]){re.escape(form)}(?![\w])" for form in forms)
            assert any(re.search(pattern, row) for row in rows), f"{option.name}: {forms}"
