"""Celsius: temperatures from Celsius to Fahrenheit, in two steps without state.

Each frame that comes in over TCP holds one temperature, a 32-bit float; each one leaves as a line
of text.
"""

from __future__ import annotations

import struct

import wallaroo

TEMPERATURE = struct.Struct(">f")


def application_setup(args: list[str]) -> object:
    """Build the application: Celsius -> times 1.8 -> plus 32 -> text."""
    in_name, in_host, in_port = wallaroo.tcp_parse_input_addrs(args)[0]
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]

    temperatures = wallaroo.source(
        "Celsius Conversion", wallaroo.TCPSourceConfig(in_name, in_host, in_port, decode_celsius)
    )
    pipeline = (
        temperatures.to(multiply)
        .to(add)
        .to_sink(wallaroo.TCPSinkConfig(out_host, out_port, encode_fahrenheit))
    )
    return wallaroo.build_application("Celsius to Fahrenheit", pipeline)


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode_celsius(payload: bytes) -> float:
    """Read one frame: a 32-bit float, big end first."""
    celsius: float = TEMPERATURE.unpack(payload)[0]
    return celsius


@wallaroo.computation(name="multiply by 1.8")
def multiply(celsius: float) -> float:
    """A degree Celsius is 1.8 degrees Fahrenheit."""
    return celsius * 1.8


@wallaroo.computation(name="add 32")
def add(scaled: float) -> float:
    """Water freezes at 32 degrees Fahrenheit."""
    return scaled + 32


@wallaroo.encoder
def encode_fahrenheit(fahrenheit: float) -> bytes:
    """Write the number as a line of text."""
    return f"{fahrenheit!r}\n".encode()
