"""Top words: the three most frequent words of each minute.

A file has a message per line, with its own time; messages may come up to ten seconds out of order.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import wallaroo

TOP = 3


@dataclass(frozen=True)
class Counted:
    """How often a word was used in a minute."""

    word: str
    count: int


def application_setup(args: list[str]) -> object:
    """Build the application: a window per word and minute, then one of all words of that minute."""
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", default="messages.txt")
    options, _ = parser.parse_known_args(args)

    messages = wallaroo.source("Messages", wallaroo.FileSourceConfig("Messages", options.messages))
    minutes = wallaroo.range_windows(wallaroo.minutes(1))
    pipeline = (
        messages.with_event_time(second_of, delay=wallaroo.seconds(10), allow_before_1980=True)
        .flat_map(words_of)
        .key_by(word_itself)
        .to(minutes.over(WordCount))
        .collect()
        .to(minutes.over(TopWords))
        .to_sink(wallaroo.TCPSinkConfig(out_host, out_port, encode_line))
    )
    return wallaroo.build_application("Top Words", pipeline)


def second_of(line: str) -> float:
    """A line is a second, and a message."""
    return float(line.partition(" ")[0])


def words_of(line: str) -> list[str]:
    """Words have the time of their message."""
    return line.lower().split()[1:]


@wallaroo.key_extractor
def word_itself(word: str) -> str:
    """Every word is counted by itself."""
    return word


class WordCount(wallaroo.Aggregation[str, int, Counted]):
    """How often a word was used."""

    def initial_accumulator(self) -> int:
        return 0

    def update(self, word: str, count: int, /) -> int:
        return count + 1

    def combine(self, left: int, right: int, /) -> int:
        return left + right

    def output(self, word: str, count: int, /) -> Counted:
        return Counted(word, count)


class TopWords(wallaroo.Aggregation[Counted, list[Counted], str]):
    """The most frequent words; of equally frequent ones, the first of the alphabet."""

    def initial_accumulator(self) -> list[Counted]:
        return []

    def update(self, counted: Counted, top: list[Counted], /) -> list[Counted]:
        return self.combine(top, [counted])

    def combine(self, left: list[Counted], right: list[Counted], /) -> list[Counted]:
        return sorted(left + right, key=lambda each: (-each.count, each.word))[:TOP]

    def output(self, _: str, top: list[Counted], window: wallaroo.Window) -> str:  # type: ignore[override]  # with the window
        words = ", ".join(f"{each.word} {each.count}" for each in top)
        return f"minute {window.start // wallaroo.minutes(1)}: {words}"


@wallaroo.encoder
def encode_line(line: str) -> str:
    """A line of text for each minute."""
    return f"{line}\n"
