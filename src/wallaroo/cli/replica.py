"""``wallaroo replica``: a checkpoint's copy on a second host.

Where it runs: a terminal or service of that host, for as long as the copy is to be kept.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from wallaroo.cli.receive.receiver import listen_address
from wallaroo.cli.terminal.service import add_certificate, report, stop_request
from wallaroo.network.reachability import require_encrypted
from wallaroo.network.tls import TLS
from wallaroo.network.tls_sockets import pem_of
from wallaroo.state.replication.keeper import keep


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "replica",
        help="keep a copy of a checkpoint on this host, for --durability replicated",
        description=(
            "Keep a copy of another host's checkpoint in FOLDER, which is empty at first. A run "
            "with --durability replicated --replica HOST:PORT --replica-key FILE acknowledges no "
            "input, and lets no output leave, before it is on this disk, too; FILE is a copy of "
            "replica.key, which this command writes into FOLDER. If that host is lost, `wallaroo "
            "run --checkpoint FOLDER --take-over` continues here; with --standby, a run does so by "
            "itself."
        ),
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of the copy")
    parser.add_argument(
        "--listen",
        default="127.0.0.1:7200",
        metavar="HOST:PORT",
        help="this host's address for the run; port 0 picks a free one (default: %(default)s)",
    )
    add_certificate(parser, "the connection with, self-signed or not; stored in the key file")
    parser.set_defaults(handler=replica)


def replica(arguments: argparse.Namespace) -> int:
    """Keep the copy until SIGINT or SIGTERM."""
    host, port = listen_address(arguments.listen)
    cert = arguments.tls_cert
    what = f"{host} is reached over a network, and the connection is not encrypted."
    require_encrypted("wallaroo replica", host, cert is not None, what)
    pem = pem_of(TLS(cert, arguments.tls_key or "")) if cert is not None else None
    folder: Path = arguments.folder
    keep(folder.absolute(), host, port, pem, stop_request(), report)
    return 0
