"""Parsers of the ``--in`` and ``--out`` arguments of applications.

Where it runs: driver, inside ``application_setup``.  Both ignore all other arguments; a missing
option raises a WallarooParameterError that names the line that asked for it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.user_code.user_frames import user_place

Address = tuple[str, ...]
MEANING = {"--in": "where the sources listen", "--out": "where the sinks connect to"}


def tcp_parse_input_addrs(args: Sequence[str]) -> list[Address]:
    """Read ``-i``/``--in NAME@HOST:PORT[,NAME@HOST:PORT...]`` as a list of address tuples.

    Each is ``(name, host, port)``, all strings.

    Without ``NAME@`` the tuple is ``(host, port)``; a further ``:MAX_SIZE`` comes last.

    >>> tcp_parse_input_addrs(["--in", "Votes@127.0.0.1:7010,Bids@127.0.0.1:7011", "--verbose"])
    [('Votes', '127.0.0.1', '7010'), ('Bids', '127.0.0.1', '7011')]
    """
    given = _option(args, "-i", "--in", "NAME@HOST:PORT[,NAME@HOST:PORT...]")
    return [_input(part) for part in given.split(",") if part]


def tcp_parse_output_addrs(args: Sequence[str]) -> list[Address]:
    """Read ``-o``/``--out HOST:PORT[,HOST:PORT...]`` as ``[(host, port), ...]``, all strings.

    >>> tcp_parse_output_addrs(["--out=127.0.0.1:7002"])
    [('127.0.0.1', '7002')]
    """
    given = _option(args, "-o", "--out", "HOST:PORT[,HOST:PORT...]")
    return [_host_port(part, "--out", "HOST:PORT") for part in given.split(",") if part]


def _option(args: Sequence[str], short: str, long: str, shape: str) -> str:
    parser = argparse.ArgumentParser(
        prog="wallaroo", add_help=False, allow_abbrev=False, exit_on_error=False
    )
    parser.add_argument(short, long, dest="value", metavar=shape, help=MEANING[long])
    place = user_place()
    try:
        value = parser.parse_known_args(list(args))[0].value
    except argparse.ArgumentError:  # the option is the last argument
        value = None
    if value is None:
        raise WallarooParameterError(
            Problem(long, place, "The application needs this option.", f"Give {long} {shape}.")
        )
    return str(value)


def _input(text: str) -> Address:
    name, at, address = text.rpartition("@")
    return (*([name] if at else []), *_host_port(address, "--in", "NAME@HOST:PORT"))


def _host_port(text: str, option: str, shape: str) -> Address:
    if text.startswith("["):  # [::1]:7010
        host, _, rest = text[1:].partition("]")
        parts = (host, *rest.removeprefix(":").split(":"))
    else:
        parts = tuple(text.split(":"))
    if len(parts) < 2 or not all(parts):
        raise WallarooParameterError(
            Problem(option, "", f"'{text}' is not an address.", f"Write it as {shape}.")
        )
    return parts
