"""Celsius with a connector: temperatures from a source program, in Fahrenheit, as lines.

A source program (``feed.py``) connects and sends streams of messages.  It may be killed and started
again: every temperature comes out once.
"""

from __future__ import annotations

import struct

import wallaroo
import wallaroo.experimental

COOKIE = "Dragons-Love-Tacos"


def application_setup(args: list[str]) -> object:
    """Build the application: messages -> Celsius -> Fahrenheit -> text."""
    in_host, in_port = wallaroo.tcp_parse_input_addrs(args)[0][-2:]
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]

    feed = wallaroo.experimental.SourceConnectorConfig(
        "celsius_feed",
        encoder=encode_feed,
        decoder=decode_feed,
        port=in_port,
        cookie=COOKIE,
        max_credits=100,
        refill_credits=50,
        host=in_host,
    )
    pipeline = (
        wallaroo.source("convert temperature readings", feed)
        .to(multiply)
        .to(add)
        .to_sink(wallaroo.TCPSinkConfig(out_host, out_port, encode_fahrenheit))
    )
    return wallaroo.build_application("Celsius to Fahrenheit", pipeline)


@wallaroo.experimental.stream_message_encoder
def encode_feed(payload: bytes) -> bytes:
    """What a source program sends is a message's payload already."""
    return payload


@wallaroo.experimental.stream_message_decoder
def decode_feed(payload: bytes) -> float:
    """Read one temperature: a big-endian 32-bit float."""
    return float(struct.unpack(">f", payload)[0])


@wallaroo.computation(name="multiply by 1.8")
def multiply(celsius: float) -> float:
    """First half of the conversion."""
    return celsius * 1.8


@wallaroo.computation(name="add 32")
def add(scaled: float) -> float:
    """Second half of the conversion."""
    return scaled + 32


@wallaroo.encoder
def encode_fahrenheit(fahrenheit: float) -> bytes:
    """Write a line."""
    return b"%r\n" % fahrenheit
