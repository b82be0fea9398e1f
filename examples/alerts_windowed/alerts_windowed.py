"""Alerts, windowed: report every user who moved much money within nine seconds.

A generator makes up transactions of five users, ten a second by their own times, without end (or as
many as ``--transactions N`` says).  Windows of nine seconds, one every three, sum each user's
transactions; an alert carries a sum beyond 2000.
"""

from __future__ import annotations

import argparse

import wallaroo

USERS = ("Fido", "Rex", "Dr. Whiskers", "Feathers", "Mountaineer")
PER_SECOND = 10


def application_setup(args: list[str]) -> object:
    """Build the application: generator -> a sum per user and window -> text."""
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]
    parser = argparse.ArgumentParser()
    parser.add_argument("--transactions", type=int, default=None)
    options, _ = parser.parse_known_args(args)

    transactions = wallaroo.source(
        "Alerts (windowed)",
        wallaroo.GenSourceConfig("Alerts (windowed)", TransactionGenerator(options.transactions)),
    )
    windows = wallaroo.range_windows(wallaroo.seconds(9)).with_slide(wallaroo.seconds(3))
    pipeline = (
        transactions.with_event_time(time_of, allow_before_1980=True)
        .key_by(extract_user)
        .to(windows.over(TotalAggregation))
        .to_sink(wallaroo.TCPSinkConfig(out_host, out_port, encode_alert))
    )
    return wallaroo.build_application("Alerts", pipeline)


def time_of(transaction: Transaction) -> float:
    """Transactions are a tenth of a second apart."""
    return transaction.number / PER_SECOND


class Transaction:
    """Money moved by a user.  ``totals`` is the generator's memory: the sums of all users'
    transactions, this one included.
    """

    __slots__ = ("amount", "number", "totals", "user")

    def __init__(self, number: int, user: str, amount: int, totals: tuple[int, ...]) -> None:
        self.number = number
        self.user = user
        self.amount = amount
        self.totals = totals


class TransactionGenerator:
    """Users take turns; whose sum has gone beyond 5000 pays back 6000.

    All that the next transaction depends on is in the last one, so a generator that starts again
    goes on where it was.
    """

    def __init__(self, transactions: int | None = None) -> None:
        self.transactions = transactions

    def initial_value(self) -> Transaction:
        """The first transaction."""
        return Transaction(0, USERS[0], 1, (1, 0, 0, 0, 0))

    def apply(self, last: Transaction) -> Transaction | None:
        """The transaction after ``last``; None at the end."""
        number = last.number + 1
        if number == self.transactions:
            return None
        turn = number % len(USERS)
        amount = (last.amount * (2**61 - 1) + 7) % 2500 - 1250
        total = last.totals[turn]
        if total > 5000:
            amount = -6000
        elif total < -5000:
            amount = 6000
        totals = (*last.totals[:turn], total + amount, *last.totals[turn + 1 :])
        return Transaction(number, USERS[turn], amount, totals)


class DepositAlert:
    """A user has put in far more than taken out."""

    def __init__(self, user: str, total: int) -> None:
        self.user = user
        self.total = total

    def __str__(self) -> str:
        return f"Deposit Alert for {self.user}: {self.total}"


class WithdrawalAlert:
    """A user has taken out far more than put in."""

    def __init__(self, user: str, total: int) -> None:
        self.user = user
        self.total = total

    def __str__(self) -> str:
        return f"Withdrawal Alert for {self.user}: {self.total}"


@wallaroo.key_extractor
def extract_user(transaction: Transaction) -> str:
    """Every user is a key of its own."""
    return transaction.user


class TotalAggregation(wallaroo.Aggregation[Transaction, int, "DepositAlert | WithdrawalAlert"]):
    """The sum of a window's transactions; an alert if it is beyond 2000 on either side."""

    def initial_accumulator(self) -> int:
        return 0

    def update(self, transaction: Transaction, total: int, /) -> int:
        return total + transaction.amount

    def combine(self, left: int, right: int, /) -> int:
        return left + right

    def output(self, user: str, total: int, /) -> DepositAlert | WithdrawalAlert | None:
        if total > 2000:
            return DepositAlert(user, total)
        if total < -2000:
            return WithdrawalAlert(user, total)
        return None


@wallaroo.encoder
def encode_alert(alert: DepositAlert | WithdrawalAlert) -> bytes:
    """Write an alert as a line of text."""
    return f"{alert}\n".encode()
