"""Word Count, vectorized: as ``word_count.py``, with functions that are called with many lines at
once.

Each word that arrives is answered with its count so far.  Lines become a column of words in Arrow;
the counts are a column of a table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

import wallaroo
from wallaroo.vectorized.grouping import running_count

PUNCTUATION = " !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

# the state of one word
TOTAL = np.dtype([("count", "i8")])


def application_setup(args: list[str]) -> object:
    """Build the application: lines -> words -> one counter per word -> text."""
    in_name, in_host, in_port = wallaroo.tcp_parse_input_addrs(args)[0]
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]

    words = wallaroo.source(
        "Split and Count", wallaroo.TCPSourceConfig(in_name, in_host, in_port, decode_words)
    )
    pipeline = (
        words.key_by(extract_words)
        .to(count_words)
        .to_sink(wallaroo.TCPSinkConfig(out_host, out_port, encode_word_counts))
    )
    return wallaroo.build_application("Word Count", pipeline)


@wallaroo.batch_decoder(header_length=4, length_fmt=">I")
def decode_words(payloads: list[bytes]) -> pa.RecordBatch:
    """Cut texts into lower-case words without the punctuation around them."""
    texts = pc.utf8_lower(pa.array(payloads, pa.binary()).cast(pa.string()))
    lines = pc.list_flatten(pc.split_pattern(texts, "\n"))
    words = pc.list_flatten(pc.split_pattern(pc.utf8_trim(lines, PUNCTUATION), " "))
    return pa.RecordBatch.from_pydict({"word": pc.utf8_trim(words, PUNCTUATION)})


@wallaroo.batch_key_extractor
def extract_words(rows: pa.RecordBatch) -> pa.Array:
    """Every word is a key of its own."""
    return rows.column("word")


@wallaroo.batch_state_computation(name="count word", state=TOTAL)
def count_words(rows: pa.RecordBatch, at: NDArray[Any], totals: NDArray[Any]) -> pa.RecordBatch:
    """Count every word; each row gets the count that it brought its word to."""
    counts = totals["count"][at] + running_count(at)
    totals["count"] += np.bincount(at, minlength=len(totals))
    return pa.RecordBatch.from_pydict({"word": rows.column("word"), "count": counts})


@wallaroo.batch_encoder
def encode_word_counts(rows: pa.RecordBatch) -> pa.Array:
    """Write ``word => count`` as a line of text per row."""
    counts = rows.column("count").cast(pa.string())
    lines = pc.binary_join_element_wise(rows.column("word"), counts, " => ")
    return pc.binary_join_element_wise(lines, "", "\n")
