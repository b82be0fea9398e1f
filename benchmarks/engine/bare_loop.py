"""The bare loop: the functions of an application called in a plain Python loop, by itself on one
core.  It is the limit of what an engine in Python can do per event.

    python -m benchmarks.engine.bare_loop NAME

prints ``ready``, waits for a line, and prints the events per second of one turn of the loop: that
is how it runs on all cores at once.  Cores that share what a core is made of, as those of virtual
machines often do, are slower together than one of them is alone.

Where it runs: the benchmark's process, or anywhere.  Payloads are cut out of their frames already;
nothing is read, shipped, stored or sent.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from subprocess import PIPE
from typing import Any

from benchmarks.lib import loads
from benchmarks.lib.machine import cores
from wallaroo.protocols.framing import Framing, frame_splitter

REPEATS = 100  # of the Bill of Rights in a turn of the loop


@dataclass(frozen=True, slots=True)
class Input:
    """What one source receives: whole frames, chunk by chunk, and the decoder's function."""

    source: str
    frames: loads.Frames
    decode: Callable[[bytes], Any]

    def chunks(self) -> list[bytes]:
        """The frames in the runs in which a spool holds them."""
        begun, chunks = 0, []
        for end, _ in self.frames.ends:
            chunks.append(self.frames.content[begun:end])
            begun = end
        return chunks

    def payloads(self) -> list[list[bytes]]:
        """The payloads, run by run."""
        return list(map(frame_splitter(Framing()), self.chunks()))


@dataclass(frozen=True, slots=True)
class Workload:
    """The functions of an application, and input for a turn of the loop.

    ``split`` makes several events of one that was decoded; None: events are what is decoded.
    """

    name: str
    inputs: tuple[Input, ...]
    split: Callable[[Any], list[Any]] | None
    key_of: Callable[[Any], Any]
    make: Callable[[], Any]
    compute: Callable[[Any, Any], Any]
    encode: Callable[[Any], bytes]


def market_spread(events: int = 200_000) -> Workload:
    """Orders and quotes, half of the events each."""
    import market_spread as example  # found by loads.prepare()

    orders, quotes = loads.market_frames()
    inputs = tuple(
        Input(source, repeated(content, size, events // 2), decoder.function)
        for source, content, size, decoder in (
            (loads.ORDERS, orders, 57, example.decode_order),
            (loads.QUOTES, quotes, 46, example.decode_quote),
        )
    )
    return Workload(
        "Market Spread",
        inputs,
        None,
        example.extract_symbol.function,
        example.Market,
        example.check_market_data.function,
        example.encode_rejection.function,
    )


def word_count(repeats: int = REPEATS) -> Workload:
    """The Bill of Rights again and again; an event is a word."""
    import word_count as example  # found by loads.prepare()

    text = (loads.EXAMPLES / "word_count" / "bill_of_rights.txt").read_bytes()
    lines = [line for line in text.split(b"\n") if line]
    return Workload(
        "Word Count",
        (
            Input(
                "Split and Count",
                loads.Frames.of_payloads(lines * repeats),
                example.decode_lines.function,
            ),
        ),
        example.split.function,
        example.extract_word.function,
        example.WordTotal,
        example.count_word.function,
        example.encode_word_count.function,
    )


WORKLOADS = {"Market Spread": market_spread, "Word Count": word_count}


def on_all_cores(name: str) -> float:
    """Return the events per second of bare loops that run on every core at once."""
    command = [sys.executable, "-m", "benchmarks.engine.bare_loop", name]
    with ExitStack() as stack:
        loops = [
            stack.enter_context(
                subprocess.Popen(command, text=True, cwd=loads.ROOT, stdin=PIPE, stdout=PIPE)
            )
            for _ in range(cores())
        ]
        for loop in loops:
            assert loop.stdout is not None
            loop.stdout.readline()
        for loop in loops:
            assert loop.stdin is not None
            loop.stdin.write("\n")
            loop.stdin.flush()
        return sum(float(loop.communicate()[0]) for loop in loops)


def main() -> None:
    """Run one turn of the loop when asked to."""
    loads.prepare()
    workload = WORKLOADS[sys.argv[1]]()
    bare_us(workload)
    print("ready", flush=True)
    sys.stdin.readline()
    print(1e6 / bare_us(workload, time.perf_counter), flush=True)


def repeated(content: bytes, frame_bytes: int, events: int) -> loads.Frames:
    """So many frames of one length, out of fewer."""
    wanted = events * frame_bytes
    return loads.Frames.of_equal((content * (wanted // len(content) + 1))[:wanted], frame_bytes)


def bare_us(workload: Workload, clock: Callable[[], float] = time.process_time) -> float:
    """CPU time per event of one turn of the loop, in microseconds; by another ``clock``, its
    time.
    """
    prepared = [(source.decode, source.payloads()) for source in workload.inputs]
    loop = _events_loop if workload.split is None else _several_loop
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        states: dict[Any, Any] = {}
        events = 0
        began = clock()
        for decode, runs in prepared:
            for payloads in runs:
                events += loop(workload, decode, payloads, states, [])
        return (clock() - began) / events * 1e6
    finally:
        if was_enabled:
            gc.enable()


def _events_loop(
    workload: Workload,
    decode: Callable[[bytes], Any],
    payloads: Sequence[bytes],
    states: dict[Any, Any],
    outputs: list[bytes],
) -> int:
    key_of, make = workload.key_of, workload.make
    compute, encode = workload.compute, workload.encode
    for payload in payloads:
        event = decode(payload)
        key = key_of(event)
        state = states.get(key)
        if state is None:
            state = states[key] = make()
        output = compute(event, state)
        if output is not None:
            outputs.append(encode(output))
    return len(payloads)


def _several_loop(
    workload: Workload,
    decode: Callable[[bytes], Any],
    payloads: Sequence[bytes],
    states: dict[Any, Any],
    outputs: list[bytes],
) -> int:
    split, key_of, make = workload.split, workload.key_of, workload.make
    compute, encode = workload.compute, workload.encode
    assert split is not None
    count = 0
    for payload in payloads:
        events = split(decode(payload))
        count += len(events)
        for event in events:
            key = key_of(event)
            state = states.get(key)
            if state is None:
                state = states[key] = make()
            output = compute(event, state)
            if output is not None:
                outputs.append(encode(output))
    return count


if __name__ == "__main__":
    main()
