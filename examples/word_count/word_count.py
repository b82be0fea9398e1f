"""Word Count: how often has each word been seen so far?

Text comes in over TCP, one frame per line.  Lines are split into words, every word has its own
counter, and every single word that arrives is answered with its running count.
"""

from __future__ import annotations

import wallaroo

PUNCTUATION = " !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def application_setup(args: list[str]) -> object:
    """Build the application: lines -> words -> one counter per word -> text."""
    in_name, in_host, in_port = wallaroo.tcp_parse_input_addrs(args)[0]
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]

    lines = wallaroo.source(
        "Split and Count", wallaroo.TCPSourceConfig(in_name, in_host, in_port, decode_lines)
    )
    pipeline = (
        lines.to(split)
        .key_by(extract_word)
        .to(count_word)
        .to_sink(wallaroo.TCPSinkConfig(out_host, out_port, encode_word_count))
    )
    return wallaroo.build_application("Word Count", pipeline)


class WordTotal:
    """The state of one word."""

    def __init__(self) -> None:
        self.count = 0


class WordCount:
    """A word and how often it has been seen."""

    def __init__(self, word: str, count: int) -> None:
        self.word = word
        self.count = count


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode_lines(payload: bytes) -> str:
    """Read one frame: UTF-8 text, one line or many."""
    return payload.decode("utf-8")


@wallaroo.computation_multi(name="split into words")
def split(text: str) -> list[str]:
    """Cut text into lower-case words without the punctuation around them."""
    words = []
    for line in text.split("\n"):
        for word in line.lower().strip(PUNCTUATION).split(" "):
            words.append(word.strip(PUNCTUATION))
    return words


@wallaroo.key_extractor
def extract_word(word: str) -> str:
    """Every word is a key of its own."""
    return word


@wallaroo.state_computation(name="count word", state=WordTotal)
def count_word(word: str, total: WordTotal) -> WordCount:
    """Count one more; the result is a new object, never the state itself."""
    total.count += 1
    return WordCount(word, total.count)


@wallaroo.encoder
def encode_word_count(result: WordCount) -> bytes:
    """Write ``word => count`` as a line of text."""
    return f"{result.word} => {result.count}\n".encode()
