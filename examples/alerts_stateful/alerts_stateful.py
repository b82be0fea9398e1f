"""Alerts, stateful: report every user whose account is far off balance.

A generator makes up transactions of five users without end (or as many as ``--transactions N``
says).  The sum of each user's transactions is that user's state; an alert carries the sum, and
follows every transaction after which it is beyond 2000.
"""

from __future__ import annotations

import argparse

import wallaroo

USERS = ("Fido", "Rex", "Dr. Whiskers", "Feathers", "Mountaineer")


def application_setup(args: list[str]) -> object:
    """Build the application: generator -> one total per user -> text."""
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]
    parser = argparse.ArgumentParser()
    parser.add_argument("--transactions", type=int, default=None)
    options, _ = parser.parse_known_args(args)

    transactions = wallaroo.source(
        "Alerts (stateful)",
        wallaroo.GenSourceConfig("Alerts (stateful)", TransactionGenerator(options.transactions)),
    )
    pipeline = (
        transactions.key_by(extract_user)
        .to(check_transaction_total)
        .to_sink(wallaroo.TCPSinkConfig(out_host, out_port, encode_alert))
    )
    return wallaroo.build_application("Alerts", pipeline)


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


class TransactionTotal:
    """The state of one user."""

    def __init__(self) -> None:
        self.total = 0


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


@wallaroo.state_computation(name="check transaction total", state=TransactionTotal)
def check_transaction_total(
    transaction: Transaction, total: TransactionTotal
) -> DepositAlert | WithdrawalAlert | None:
    """Add to the user's total; alert as long as it is beyond 2000 on either side."""
    total.total += transaction.amount
    if total.total > 2000:
        return DepositAlert(transaction.user, total.total)
    if total.total < -2000:
        return WithdrawalAlert(transaction.user, total.total)
    return None


@wallaroo.encoder
def encode_alert(alert: DepositAlert | WithdrawalAlert) -> bytes:
    """Write an alert as a line of text."""
    return f"{alert}\n".encode()
