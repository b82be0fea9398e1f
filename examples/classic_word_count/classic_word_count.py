"""Classic Word Count: the word count in Wallaroo's API of 2017.

Computations, state builders, partition functions and codecs are classes.  The state is partitioned
by a word's first letter: 26 letters and ``!`` for everything else.
"""

import string
import struct

import wallaroo

PUNCTUATION = " !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def application_setup(args):
    """Build the application: lines -> words -> one table per letter -> text."""
    in_host, in_port = wallaroo.tcp_parse_input_addrs(args)[0]
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]

    letters = [*string.ascii_lowercase, "!"]

    builder = wallaroo.ApplicationBuilder("Word Count Application")
    builder.new_pipeline(
        "Split and Count", wallaroo.TCPSourceConfig(in_host, in_port, LineDecoder())
    )
    builder.to_parallel(Split)
    builder.to_state_partition(
        CountWord(), WordTotalsBuilder(), "word totals", FirstLetter(), letters
    )
    builder.to_sink(wallaroo.TCPSinkConfig(out_host, out_port, CountEncoder()))
    return builder.build()


class Split:
    """Cuts text into lower-case words without the punctuation around them."""

    def name(self):
        return "split into words"

    def compute_multi(self, text):
        return [
            word.strip(PUNCTUATION)
            for line in text.split("\n")
            for word in line.lower().strip(PUNCTUATION).split(" ")
        ]


class CountWord:
    """Counts a word in its letter's table."""

    def name(self):
        return "count word"

    def compute(self, word, totals):
        return (word, totals.add(word)), True


class WordTotals:
    """The state of one letter: how often each word has been seen."""

    def __init__(self):
        self.counts = {}

    def add(self, word):
        self.counts[word] = self.counts.get(word, 0) + 1
        return self.counts[word]


class WordTotalsBuilder:
    """Makes the state of a letter."""

    def build(self):
        return WordTotals()


class FirstLetter:
    """Finds a word's partition."""

    def partition(self, word):
        return word[0] if "a" <= word[:1] <= "z" else "!"


class LineDecoder:
    """Reads one frame: UTF-8 text."""

    def header_length(self):
        return 4

    def payload_length(self, header):
        return struct.unpack(">I", header)[0]

    def decode(self, payload):
        return payload.decode("utf-8")


class CountEncoder:
    """Writes a line per word."""

    def encode(self, counted):
        word, count = counted
        return f"{word} => {count}\n"
