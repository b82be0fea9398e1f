"""A count per key, from TCP to files: the application of drivers that contend for a checkpoint."""

from __future__ import annotations

from pathlib import Path

import wallaroo


class Count:
    """How many events of a key came."""

    def __init__(self) -> None:
        self.count = 0


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(payload: bytes) -> str:
    return payload.decode()


@wallaroo.key_extractor
def key_of(event: str) -> str:
    return event.split(" ")[0]


@wallaroo.state_computation(name="count", state=Count)
def count(event: str, state: Count) -> str:
    state.count += 1
    return f"{event} {state.count}"


@wallaroo.encoder
def encode(answer: str) -> bytes:
    return f"{answer}\n".encode()


def counted(folder: Path, config: wallaroo.SourceConfig[str]) -> wallaroo.Application:
    """Return the application that writes to two sinks in ``folder``."""
    source = wallaroo.source("Events", config)
    sinks = [
        wallaroo.FileSinkConfig(folder / "out.txt", encode, name="file"),
        wallaroo.FileSinkConfig(folder / "parts", encode, name="parts"),
    ]
    return wallaroo.build_application("owned", source.key_by(key_of).to(count).to_sinks(sinks))


def from_tcp(port: int) -> wallaroo.TCPSourceConfig[str]:
    """Return the source of events that are sent."""
    return wallaroo.TCPSourceConfig("Events", "127.0.0.1", port, decode)


def application_setup(args: list[str]) -> wallaroo.Application:
    """Return the application of ``wallaroo run owned_application.py FOLDER PORT``."""
    folder, port = args[-2:]
    return counted(Path(folder), from_tcp(int(port)))
