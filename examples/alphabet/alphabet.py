"""Alphabet: an election in which letters stand as candidates.

Messages of nine bytes come in over TCP: the length of the rest (5), a letter, and a number of
votes.  Each letter keeps its own total, and every message is answered with the new total of its
letter.
"""

from __future__ import annotations

import struct

import wallaroo

VOTES = struct.Struct(">cI")  # letter, number of votes


def application_setup(args: list[str]) -> object:
    """Build the application: votes -> one total per letter -> text."""
    in_name, in_host, in_port = wallaroo.tcp_parse_input_addrs(args)[0]
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]

    votes = wallaroo.source(
        "Alphabet", wallaroo.TCPSourceConfig(in_name, in_host, in_port, decode_votes)
    )
    pipeline = (
        votes.key_by(extract_letter)
        .to(add_votes)
        .to_sink(wallaroo.TCPSinkConfig(out_host, out_port, encode_total))
    )
    return wallaroo.build_application("Alphabet", pipeline)


class Votes:
    """Votes for a letter: the ones in a message, or all so far."""

    __slots__ = ("letter", "votes")

    def __init__(self, letter: str, votes: int) -> None:
        self.letter = letter
        self.votes = votes


class TotalVotes:
    """The state of one letter."""

    def __init__(self) -> None:
        self.votes = 0


@wallaroo.decoder(header_length=4, length_fmt=">I", pure=True)
def decode_votes(payload: bytes) -> Votes:
    """Read one message."""
    letter, votes = VOTES.unpack(payload)
    return Votes(letter.decode("ascii"), votes)


@wallaroo.key_extractor
def extract_letter(votes: Votes) -> str:
    """Every letter is a key of its own."""
    return votes.letter


@wallaroo.state_computation(name="add votes", state=TotalVotes)
def add_votes(votes: Votes, total: TotalVotes) -> Votes:
    """Add a message's votes to its letter's total."""
    total.votes += votes.votes
    return Votes(votes.letter, total.votes)


@wallaroo.encoder
def encode_total(total: Votes) -> bytes:
    """Write ``letter => total`` as a line of text."""
    return f"{total.letter} => {total.votes}\n".encode()
