"""``wallaroo ingress``: a further ingress of a run, on another host.

Where it runs: a terminal or service of that host, for as long as it is to receive.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from wallaroo.cli.receive.receiver import listen_address
from wallaroo.cli.run.arguments import source_port
from wallaroo.cli.terminal.service import add_certificate, report, stop_request
from wallaroo.errors import PipelineError, Problem
from wallaroo.ingress.joining.host_listener import NAME
from wallaroo.ingress.joining.member import Member, MemberOptions, give_up
from wallaroo.network.tls import TLS


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "ingress",
        help="also receive a run's TCP sources on this host",
        description=(
            "Receive the TCP sources of a run on this host, too: what clients send is stored in "
            "FOLDER, which is empty at first, and the run's workers read it here. The run has "
            "--ingress-listen HOST:PORT; FILE is a copy of ingress.key, which it writes into its "
            "checkpoint's folder. Ctrl-C or SIGTERM ends this for a while: the run continues, and "
            "takes what is here when it is started again."
        ),
    )
    parser.add_argument("folder", type=Path, nargs="?", metavar="FOLDER", help="for received input")
    parser.add_argument(
        "--join",
        action="append",
        required=True,
        metavar="HOST:PORT",
        help="the run's --ingress-listen; repeat it for a standby elsewhere",
    )
    parser.add_argument("--key", type=Path, required=True, metavar="FILE", help="the run's key")
    parser.add_argument("--name", default="", help="(default: this host's name)")
    parser.add_argument(
        "--host",
        default="",
        metavar="ADDRESS",
        help="where clients connect (default: as the sources are configured)",
    )
    _add_ports(parser)
    leaving = parser.add_mutually_exclusive_group()
    leaving.add_argument(
        "--leave",
        action="store_true",
        help="accept no more input, and leave for good once all of FOLDER is processed",
    )
    leaving.add_argument(
        "--lost",
        metavar="NAME",
        help="without FOLDER: the disk of ingress NAME is lost; give up its unread input",
    )
    parser.set_defaults(handler=ingress)


def _add_ports(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port",
        type=source_port,
        action="append",
        default=[],
        metavar="NAME=PORT",
        help="of a source (default: as on the run's host); 0: any free one; may be repeated",
    )
    parser.add_argument(
        "--acknowledged",
        type=source_port,
        action="append",
        default=[],
        metavar="NAME=PORT",
        help="of a source, for senders that want acknowledgements (default: as on the run's host)",
    )
    parser.add_argument(
        "--ranges",
        metavar="HOST:PORT",
        help="where workers read (default: any port of the address that reaches the run)",
    )
    add_certificate(parser, "that with, self-signed or not")


def ingress(arguments: argparse.Namespace) -> int:
    """Receive until SIGINT or SIGTERM, or until it has left."""
    _check(arguments)
    options = MemberOptions(
        addresses=tuple(map(listen_address, arguments.join)),
        key=arguments.key,
        folder=(arguments.folder or Path()).absolute(),
        name=arguments.name,
        host=arguments.host,
        ports=dict(arguments.port),
        ack_ports=dict(arguments.acknowledged),
        ranges=listen_address(arguments.ranges) if arguments.ranges else None,
        tls=TLS(arguments.tls_cert, arguments.tls_key or "") if arguments.tls_cert else None,
        is_leaving=arguments.leave,
    )
    if arguments.lost is not None:
        give_up(options, arguments.lost)
        report(f"ingress '{arguments.lost}' is given up")
        return 0
    Member(options, stop_request(), report).run()
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Raise PipelineError for options that do not go together."""
    what = ""
    fix = ""
    if (arguments.folder is None) != (arguments.lost is not None):
        what = "FOLDER is needed, but with --lost there is none."
        fix = "Give the folder of this ingress, or --lost NAME alone."
    elif arguments.name and not NAME.fullmatch(arguments.name):
        what = f"--name {arguments.name!r} is not a name."
        fix = "Give letters, digits, '.', '_' and '-'."
    if what:
        raise PipelineError(Problem("wallaroo ingress", "", what, fix))
