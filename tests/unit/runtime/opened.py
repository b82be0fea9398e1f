"""A program that opens a checkpoint and lets it go: ``opened.py ROOT``."""

from __future__ import annotations

from pathlib import Path

from wallaroo.state.checkpoint import open_checkpoint


def main(root: str) -> None:
    open_checkpoint(Path(root), is_durable=True).release()
