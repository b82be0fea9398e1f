"""Every example's functions as plain functions, and its data against its oracle: no runner, no
sockets.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import alerts_stateful
import alerts_stateless
import alphabet
import alphabet_oracle
import celsius
import celsius_data
import market_spread
import pytest
import word_count

ORDER = struct.Struct(">BBI6s4sdd21s")
QUOTE = struct.Struct(">B4s21sdd")


def test_word_count_splits_the_bill_of_rights_into_482_words(examples: Path) -> None:
    lines = [
        line
        for line in (examples / "word_count/bill_of_rights.txt").read_text().split("\n")
        if line
    ]

    words = [
        word
        for line in lines
        for word in word_count.split.compute_multi(word_count.decode_lines.decode(line.encode()))
    ]

    assert len(words) == 482
    assert Counter(words) == json.loads(
        (examples / "word_count/bill_of_rights_word_counts.json").read_text()
    )


def test_word_count_keeps_empty_words_as_wallaroo_does() -> None:
    assert word_count.split.compute_multi("(We,  the People)\n") == ["we", "", "the", "people", ""]


def test_word_count_answers_with_a_line_per_word() -> None:
    total = word_count.count_word.initial_state()
    counts = [word_count.count_word.compute("the", total) for _ in range(2)]
    assert [word_count.encode_word_count.encode(count) for count in counts] == [
        b"the => 1\n",
        b"the => 2\n",
    ]


def test_alphabet_adds_up_the_file_as_its_oracle_does(examples: Path) -> None:
    messages = (examples / "alphabet/alphabet_votes.msg").read_bytes()
    states: dict[Any, Any] = {}
    totals: dict[str, list[int]] = {}
    for at in range(0, len(messages), 9):
        votes = alphabet.decode_votes.decode(messages[at + 4 : at + 9])
        state = states.setdefault(
            alphabet.extract_letter.extract_key(votes), alphabet.add_votes.initial_state()
        )
        total = alphabet.add_votes.compute(votes, state)
        totals.setdefault(total.letter, []).append(total.votes)

    assert totals == alphabet_oracle.running_totals(messages)
    assert {letter: each[-1] for letter, each in totals.items()} == json.loads(
        (examples / "alphabet/alphabet_expected.json").read_text()
    )
    assert alphabet.encode_total.encode(alphabet.Votes("a", 12)) == b"a => 12\n"


def test_alphabets_oracle_refuses_what_is_not_a_vote() -> None:
    with pytest.raises(ValueError, match="byte 9"):
        alphabet_oracle.running_totals(b"\x00\x00\x00\x05a\x00\x00\x00\x01" + b"\x00" * 9)


@pytest.mark.parametrize("module", [alerts_stateless, alerts_stateful])
def test_a_generator_ends_after_the_transactions_asked_for_and_follows_from_the_last_value_alone(
    module: Any,
) -> None:
    transaction, count = module.TransactionGenerator(12).initial_value(), 0
    while transaction is not None:
        transaction, count = module.TransactionGenerator(12).apply(transaction), count + 1
    assert count == 12


def test_stateless_alerts_begin_as_listed(examples: Path) -> None:
    generator = alerts_stateless.TransactionGenerator()
    transactions = [generator.initial_value()]
    while len(transactions) < 25:
        transactions.append(generator.apply(transactions[-1]))
    alerts = [
        alert
        for each in transactions
        if (alert := alerts_stateless.check_transaction.compute(each))
    ]

    assert [each.amount for each in transactions[:5]] == [1, 208, 565, 1072, -771]
    assert (
        b"".join(map(alerts_stateless.encode_alert.encode, alerts))
        == (examples / "alerts_stateless/first_alerts.txt").read_bytes()
    )


def test_stateful_alerts_begin_as_listed(examples: Path) -> None:
    generator = alerts_stateful.TransactionGenerator()
    transaction, states, alerts = generator.initial_value(), {}, []
    for _ in range(31):
        user = alerts_stateful.extract_user.extract_key(transaction)
        state = states.setdefault(user, alerts_stateful.check_transaction_total.initial_state())
        alerts.append(alerts_stateful.check_transaction_total.compute(transaction, state))
        transaction = generator.apply(transaction)

    lines = b"".join(alerts_stateful.encode_alert.encode(alert) for alert in alerts if alert)
    assert lines == (examples / "alerts_stateful/first_alerts.txt").read_bytes()


def test_stateful_generator_pays_back_when_a_user_is_beyond_5000() -> None:
    generator = alerts_stateful.TransactionGenerator()
    transaction, totals = generator.initial_value(), dict.fromkeys(alerts_stateful.USERS, 0)
    paid_back = 0
    for _ in range(20_000):
        expected = (
            -6000
            if totals[transaction.user] > 5000
            else 6000
            if totals[transaction.user] < -5000
            else None
        )
        assert (
            abs(transaction.amount) < 6000 if expected is None else transaction.amount == expected
        )
        paid_back += expected is not None
        totals[transaction.user] += transaction.amount
        assert (
            totals[transaction.user]
            == transaction.totals[alerts_stateful.USERS.index(transaction.user)]
        )
        transaction = generator.apply(transaction)
    assert paid_back > 0


def test_celsius_converts_its_file_to_what_is_expected(examples: Path) -> None:
    frames = (examples / "celsius/celsius.msg").read_bytes()
    lines = b"".join(
        celsius.encode_fahrenheit.encode(
            celsius.add.compute(
                celsius.multiply.compute(celsius.decode_celsius.decode(frames[at + 4 : at + 8]))
            )
        )
        for at in range(0, len(frames), 8)
    )

    assert frames == celsius_data.frames()
    assert lines == (examples / "celsius/celsius_expected.txt").read_bytes()
    assert lines.startswith(b"-148.0\n")


def test_market_spread_rejects_until_a_narrow_quote_arrives() -> None:
    order = market_spread.decode_order.decode(
        ORDER.pack(1, 2, 77, b"000001", b"GOOG", 100.0, 601.0, b" " * 21)
    )
    narrow = market_spread.decode_quote.decode(QUOTE.pack(2, b"GOOG", b" " * 21, 601.0, 601.04))
    wide = market_spread.decode_quote.decode(QUOTE.pack(2, b"GOOG", b" " * 21, 601.0, 601.06))
    market = market_spread.check_market_data.initial_state()

    results = [
        market_spread.check_market_data.compute(event, market)
        for event in (order, narrow, order, wide, order)
    ]

    assert [result and (result.bid, result.offer) for result in results] == [
        (0.0, 0.0),
        None,
        None,
        None,
        (601.0, 601.06),
    ]
    assert (
        market_spread.extract_symbol.extract_key(order)
        == market_spread.extract_symbol.extract_key(wide)
        == b"GOOG"
    )


def test_market_spread_rejects_where_the_spread_is_wide_for_a_small_price() -> None:
    quote = market_spread.decode_quote.decode(QUOTE.pack(2, b" ABC", b" " * 21, 0.40, 0.44))
    market = market_spread.check_market_data.initial_state()

    market_spread.check_market_data.compute(quote, market)

    assert market.is_rejecting


def test_market_spreads_output_is_a_frame_of_55_bytes_behind_its_length() -> None:
    order = market_spread.decode_order.decode(
        ORDER.pack(1, 2, 77, b"000001", b"GOOG", 100.0, 601.0, b" " * 21)
    )
    frame = market_spread.encode_rejection.encode(market_spread.Rejection(order, 1.0, 2.0))

    assert struct.unpack(">IBI6s4sdddd", frame[:51]) == (
        55,
        2,
        77,
        b"000001",
        b"GOOG",
        100.0,
        601.0,
        1.0,
        2.0,
    )
    assert len(frame) == 59


@pytest.mark.parametrize(
    ("decoder", "payload"),
    [
        (market_spread.decode_order, ORDER.pack(2, 1, 1, b"000001", b"GOOG", 1.0, 1.0, b" " * 21)),
        (market_spread.decode_quote, QUOTE.pack(1, b"GOOG", b" " * 21, 1.0, 1.0)),
    ],
)
def test_market_spreads_decoders_refuse_the_other_type(decoder: Any, payload: bytes) -> None:
    with pytest.raises(ValueError, match="begins with"):
        decoder.decode(payload)
