"""Celsius, from Kafka to Kafka: temperatures as text, converted in two steps without state."""

from __future__ import annotations

import wallaroo


def application_setup(args: list[str]) -> object:
    """Build the application: Celsius -> times 1.8 -> plus 32 -> text."""
    source = wallaroo.CustomKafkaSourceCLIParser(args, decode_celsius)
    sink = wallaroo.CustomKafkaSinkCLIParser(args, encode_fahrenheit)
    pipeline = wallaroo.source("Celsius Conversion", source).to(multiply).to(add).to_sink(sink)
    return wallaroo.build_application("Celsius to Fahrenheit, Kafka", pipeline)


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode_celsius(value: bytes) -> float:
    """Read a record's value: a number as text; what is none counts as 0."""
    try:
        return float(value)
    except ValueError:
        return 0.0


@wallaroo.computation(name="multiply by 1.8")
def multiply(celsius: float) -> float:
    """A degree Celsius is 1.8 degrees Fahrenheit."""
    return celsius * 1.8


@wallaroo.computation(name="add 32")
def add(scaled: float) -> float:
    """Water freezes at 32 degrees Fahrenheit."""
    return scaled + 32


@wallaroo.encoder
def encode_fahrenheit(fahrenheit: float) -> tuple[str, None, None]:
    """Write a record: the number as text, without a key, to any partition."""
    return f"{fahrenheit:.6f}", None, None
