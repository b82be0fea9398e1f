"""Word count, with the example's own steps, from lines of a file."""

from __future__ import annotations

from pathlib import Path

import wallaroo
from examples.word_count.word_count import WordCount, count_word, extract_word, split
from tests.conformance.apps.steps import source
from wallaroo.api.application import Application


@wallaroo.encoder("word and count")
def encode(counted: WordCount) -> str:
    return f"{counted.word} {counted.count}"


def word_count(inputs: Path, outputs: Path) -> Application:
    pipeline = source(inputs).to(split).key_by(extract_word).to(count_word)
    return wallaroo.build_application(
        "Word Count",
        pipeline.to_sink(wallaroo.FileSinkConfig(outputs / "out.txt", encode, form="lines")),
    )
