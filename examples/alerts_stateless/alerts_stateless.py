"""Alerts, stateless: report every unusually large transaction.

A generator makes up transactions without end (or as many as ``--transactions N`` says); a
computation without state looks at each one by itself and lets only deposits and withdrawals of more
than 1000 through, as alerts.
"""

from __future__ import annotations

import argparse

import wallaroo


def application_setup(args: list[str]) -> object:
    """Build the application: generator -> check -> text."""
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]
    parser = argparse.ArgumentParser()
    parser.add_argument("--transactions", type=int, default=None)
    options, _ = parser.parse_known_args(args)

    transactions = wallaroo.source(
        "Alerts (stateless)",
        wallaroo.GenSourceConfig("Alerts (stateless)", TransactionGenerator(options.transactions)),
    )
    pipeline = transactions.to(check_transaction).to_sink(
        wallaroo.TCPSinkConfig(out_host, out_port, encode_alert)
    )
    return wallaroo.build_application("Alerts", pipeline)


class Transaction:
    """Money moved: deposited where the amount is positive, withdrawn where it is negative."""

    __slots__ = ("amount", "id")

    def __init__(self, id: int, amount: int) -> None:
        self.id = id
        self.amount = amount


class TransactionGenerator:
    """Each transaction follows from the one before it alone, so a generator that starts again goes
    on where it was.
    """

    def __init__(self, transactions: int | None = None) -> None:
        self.transactions = transactions

    def initial_value(self) -> Transaction:
        """The first transaction."""
        return Transaction(0, 1)

    def apply(self, last: Transaction) -> Transaction | None:
        """The transaction after ``last``; None at the end."""
        if last.id + 1 == self.transactions:
            return None
        return Transaction(last.id + 1, (last.amount * (2**61 - 1) + 7) % 2500 - 1250)


class DepositAlert:
    """A large deposit."""

    def __init__(self, id: int, amount: int) -> None:
        self.id = id
        self.amount = amount

    def __str__(self) -> str:
        return f"Deposit Alert for {self.id}: {self.amount}"


class WithdrawalAlert:
    """A large withdrawal."""

    def __init__(self, id: int, amount: int) -> None:
        self.id = id
        self.amount = amount

    def __str__(self) -> str:
        return f"Withdrawal Alert for {self.id}: {self.amount}"


@wallaroo.computation(name="check transaction")
def check_transaction(transaction: Transaction) -> DepositAlert | WithdrawalAlert | None:
    """Only a large amount is worth an alert; None lets nothing through."""
    if transaction.amount > 1000:
        return DepositAlert(transaction.id, transaction.amount)
    if transaction.amount < -1000:
        return WithdrawalAlert(transaction.id, transaction.amount)
    return None


@wallaroo.encoder
def encode_alert(alert: DepositAlert | WithdrawalAlert) -> bytes:
    """Write an alert as a line of text."""
    return f"{alert}\n".encode()
