"""An application like ``failing``, with an error policy on every step; its steps travel by
value.
"""

from __future__ import annotations

from pathlib import Path

import wallaroo
from tests.conformance.apps.failing import fail_if
from wallaroo.api.application import Application


class Count:
    def __init__(self) -> None:
        self.count = 0


def every_kind(policy: str, inputs: Path, outputs: Path) -> Application:
    """Seven steps, one of each kind; ``fail <step>.<anything>`` makes that step raise.  The second
    file gets the dead letters.
    """

    @wallaroo.decoder(name="decode", on_error=policy)
    def decode(payload: bytes) -> str:
        fail_if(payload.decode(), "decode")
        return payload.decode()

    @wallaroo.computation("compute", on_error=policy)
    def compute(event: str) -> str:
        fail_if(event, "compute")
        return event

    @wallaroo.computation_multi("compute multi", on_error=policy)
    def compute_multi(event: str) -> list[str]:
        fail_if(event, "compute multi")
        return [event]

    @wallaroo.key_extractor("extract", on_error=policy)
    def extract(event: str) -> str:
        fail_if(event, "extract")
        return event[-1:]

    @wallaroo.state_computation("state", state=Count, on_error=policy)
    def state(event: str, own: Count) -> str:
        fail_if(event, "state")
        own.count += 1
        return event

    @wallaroo.state_computation_multi("state multi", state=Count, on_error=policy)
    def state_multi(event: str, own: Count) -> list[str]:
        own.count += 1
        fail_if(event, "state multi")
        return [event]

    @wallaroo.encoder("encode", on_error=policy)
    def encode(event: str) -> str:
        fail_if(event, "encode")
        return event

    lines = wallaroo.source("in", wallaroo.FileSourceConfig("in", str(inputs / "in.txt"), decode))
    pipeline = lines.to(compute).to(compute_multi).key_by(extract).to(state).to(state_multi)
    sink = wallaroo.FileSinkConfig(outputs / "out.txt", encode, form="lines")
    letters = wallaroo.FileSinkConfig(outputs / "out2.txt") if policy == "dead-letter" else None
    return wallaroo.build_application("tolerant", pipeline.to_sink(sink), dead_letters=letters)
