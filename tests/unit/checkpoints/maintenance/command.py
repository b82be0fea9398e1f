"""The command line as a program that ``tests.forks`` runs."""

from __future__ import annotations

from wallaroo.cli import main as command_line


def main(*arguments: str) -> int:
    return command_line.main([*arguments])
