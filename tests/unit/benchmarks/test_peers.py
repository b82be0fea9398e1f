"""Peers of benchmarks: where their Pythons are looked for."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import peers


def test_a_peer_that_was_installed_takes_part_by_default(tmp_path: Path) -> None:
    program = tmp_path / ".peers" / "quix" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.touch()
    parser = argparse.ArgumentParser()

    peers.add_options(parser, "bytewax", "quix", root=tmp_path)

    assert vars(parser.parse_args([])) == {"bytewax": None, "quix": ".peers/quix/bin/python"}
    assert parser.parse_args(["--bytewax", "mine"]).bytewax == "mine"


def test_every_peer_has_its_requirements() -> None:
    for name in peers.TITLES:
        assert (Path(peers.__file__).parent / f"requirements-{name}.txt").exists()
