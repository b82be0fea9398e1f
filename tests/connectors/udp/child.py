"""A driver in miniature that sends datagrams, to be killed.

Arguments: port, folder, number of batches.  Run again with the same arguments it continues where it
was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import wallaroo
from tests.unit.sinks import killed_driver
from wallaroo.sinks import UDPSinkConfig

OUTPUTS = 4


def outputs_of(batch: int, task: int) -> list[bytes]:
    """What the one task of a batch sends."""
    return [b"%d %d" % (batch, number) for number in range(OUTPUTS)]


@wallaroo.encoder
def as_it_is(output: bytes) -> bytes:
    """Send it."""
    return output


def stage(config: UDPSinkConfig, staging: Path, batch: int) -> list[Any]:
    """One batch's tokens."""
    return killed_driver.stage(config, staging, batch, 1, outputs_of)


def main(port: str, folder: str, batches: str) -> None:
    """Commit the batches that are missing."""
    config = UDPSinkConfig("127.0.0.1", int(port), encoder=as_it_is)
    killed_driver.commit_batches(config, Path(folder), int(batches), stage, 180.0)
