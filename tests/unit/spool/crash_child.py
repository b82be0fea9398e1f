"""A writer to be killed: 40 frames, some of which are consumed; run again it continues."""

from __future__ import annotations

from pathlib import Path

from wallaroo.spool import write_tail
from wallaroo.spool.writer import SpoolWriter


def main(place: str, segment_bytes: str, frame_bytes: str) -> None:
    """Write what is missing; print each position that is published."""
    folder = Path(place)
    writer = SpoolWriter(folder, is_durable=True, segment_bytes_max=int(segment_bytes))
    position = writer.position
    for number in range(writer.position.events, 40):
        frame = (b"frame %03d" % number).ljust(int(frame_bytes))
        writer.append(frame, 1, number, resume=b"%d" % number)
        if number % 3 == 0:
            position = writer.publish()
            print(position.byte, position.events, flush=True)
        if number % 10 == 9:
            write_tail(folder, position)
            writer.remove_consumed()
    writer.publish()
