"""Every example run in this process, from its real input to its expected output."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import alerts_stateful
import alerts_stateless
import alerts_windowed
import alphabet
import alphabet_oracle
import celsius
import celsius_kafka
import market_spread
import priced_orders
import pytest
import top_words
import visits
import word_count
from market_spread_data import ORDER_FRAME, QUOTE_FRAME, Market, first
from market_spread_oracle import Oracle

from wallaroo.connectors.kafka.output import unpack
from wallaroo.testing import LocalApplication, Wire, run_local

OUT = ("--out", "127.0.0.1:7002")


def application(module: Any, source: str = "", *more: str) -> Any:
    return module.application_setup(
        [*(("--in", f"{source}@127.0.0.1:7010") if source else ()), *OUT, *more]
    )


def per_key(text: str) -> dict[str, list[int]]:
    """``key => number`` lines as the numbers of every key, in order."""
    numbers: dict[str, list[int]] = {}
    for line in text.splitlines():
        key, _, number = line.rpartition(" => ")
        numbers.setdefault(key, []).append(int(number))
    return numbers


@pytest.mark.parametrize("batches", [1, 5])
def test_word_count_counts_the_bill_of_rights(examples: Path, batches: int) -> None:
    lines = [
        line
        for line in (examples / "word_count/bill_of_rights.txt").read_bytes().split(b"\n")
        if line
    ]
    expected = json.loads((examples / "word_count/bill_of_rights_word_counts.json").read_text())

    run = run_local(
        application(word_count, "Split and Count"), {"Split and Count": lines}, batches=batches
    )

    assert len(run.outputs) == 482
    assert per_key(run.text) == {
        word: list(range(1, count + 1)) for word, count in expected.items()
    }


@pytest.mark.parametrize("tasks", [1, 3])
def test_alphabet_totals_every_letter(examples: Path, tasks: int) -> None:
    messages = (examples / "alphabet/alphabet_votes.msg").read_bytes()

    run = run_local(
        application(alphabet, "Votes"), {"Votes": Wire(messages)}, batches=4, tasks=tasks
    )

    assert len(run.outputs) == 10_000
    assert per_key(run.text) == alphabet_oracle.running_totals(messages)


def test_celsius_converts_its_file(examples: Path) -> None:
    frames = (examples / "celsius/celsius.msg").read_bytes()

    run = run_local(application(celsius, "Celsius"), {"Celsius": Wire(frames)})

    assert sorted(run.text.splitlines()) == sorted(
        (examples / "celsius/celsius_expected.txt").read_text().splitlines()
    )


def test_stateless_alerts_are_the_listed_ones(examples: Path) -> None:
    run = run_local(application(alerts_stateless, "", "--transactions", "25"))

    assert sorted(run.text.splitlines()) == sorted(
        (examples / "alerts_stateless/first_alerts.txt").read_text().splitlines()
    )


def test_stateful_alerts_are_the_listed_ones_in_order_per_user(examples: Path) -> None:
    run = run_local(application(alerts_stateful, "", "--transactions", "31"))

    def by_user(text: str) -> list[str]:
        # stable: a user's own order stays
        return sorted(text.splitlines(), key=lambda line: line.rpartition(": ")[0])

    assert by_user(run.text) == by_user((examples / "alerts_stateful/first_alerts.txt").read_text())


@pytest.mark.parametrize("batches", [1, 4])
@pytest.mark.parametrize(
    ("module", "inputs", "expected"),
    [
        (visits, {"Clicks": "clicks.txt"}, "visits.txt"),
        (top_words, {"Messages": "messages.txt"}, "top_words.txt"),
        (priced_orders, {"Orders": "orders.txt", "Quotes": "quotes.txt"}, "priced.txt"),
    ],
)
def test_timed_examples_give_what_they_list(
    examples: Path, module: Any, inputs: dict[str, str], expected: str, batches: int
) -> None:
    folder = examples / module.__name__
    lines = {
        source: [line.encode() for line in (folder / name).read_text().splitlines()]
        for source, name in inputs.items()
    }
    run = run_local(application(module), lines, batches=batches, tasks=2)

    assert sorted(run.text.splitlines()) == sorted((folder / expected).read_text().splitlines())


@pytest.mark.parametrize("batches", [1, 7])
def test_windowed_alerts_are_the_listed_ones_in_order_per_user(
    examples: Path, batches: int
) -> None:
    run = run_local(
        application(alerts_windowed, "", "--transactions", "400"), batches=batches, tasks=3
    )

    def by_user(text: str) -> list[str]:
        # stable: a user's own order stays
        return sorted(
            text.splitlines(), key=lambda line: line.rpartition(": ")[0].split(" for ")[1]
        )

    assert by_user(run.text) == by_user((examples / "alerts_windowed/alerts.txt").read_text())


@pytest.mark.parametrize("seed", [1, 2])
def test_market_spread_rejects_what_the_oracle_expects_however_the_streams_interleave(
    examples: Path, seed: int
) -> None:
    opening = (examples / "market_spread/350_symbols_initial_nbbo.msg").read_bytes()
    market = Market.of(opening, reject_share=0.2, seed=seed)
    streams = {
        "Market Data": (
            QUOTE_FRAME.size,
            b"".join(first(market.quote_blocks(), QUOTE_FRAME.size, 7_000)),
        ),
        "Orders": (
            ORDER_FRAME.size,
            b"".join(first(market.order_blocks(), ORDER_FRAME.size, 4_000)),
        ),
    }
    oracle = Oracle()
    oracle.feed_quotes(opening + streams["Market Data"][1])
    oracle.feed_orders(streams["Orders"][1])
    run = LocalApplication(application(market_spread, "Orders@127.0.0.1:7009,Market Data"))
    chance = random.Random(seed)

    run.send("Market Data", Wire(opening))
    run.batch()
    while any(frames for _, frames in streams.values()):
        source = chance.choice(list(streams))
        size, frames = streams[source]
        cut = size * chance.randrange(1, 900)
        run.send(source, Wire(frames[:cut]))
        streams[source] = size, frames[cut:]
        if chance.random() < 0.4:
            run.batch(tasks=chance.randrange(1, 4))
    run.batch()

    judgement = oracle.judge(frame[4:] for frame in run.result().outputs)
    assert judgement.is_right, str(judgement)
    assert judgement.correct > 700


def test_celsius_from_kafka_gives_numbers_as_text() -> None:
    brokers = "127.0.0.1:9092"
    args = ["--kafka_source_topic", "celsius", "--kafka_source_brokers", brokers]
    args += ["--kafka_sink_topic", "fahrenheit", "--kafka_sink_brokers", brokers]

    run = run_local(
        celsius_kafka.application_setup(args), {"kafka_source": [b"100", b"-40", b"cold"]}
    )

    values = [unpack(memoryview(output))[0] for output in run.outputs]
    assert sorted(values) == [b"-40.000000", b"212.000000", b"32.000000"]
