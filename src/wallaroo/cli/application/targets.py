"""Selection of the running application that a command addresses."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import ssl
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.cli.application.checkpoints import checkpoint_here
from wallaroo.cli.terminal.formatting import print_table
from wallaroo.durable.folders import is_store_url
from wallaroo.errors import PeerError
from wallaroo.monitoring.metrics.status import RunStatus
from wallaroo.monitoring.status_api.access import TOKEN_VARIABLE
from wallaroo.monitoring.status_api.client import Answer, ask
from wallaroo.monitoring.status_api.discovery import RunRecord, run_of, running
from wallaroo.monitoring.status_api.queries import STATUS_PATH, status_of
from wallaroo.network.tls import TLS
from wallaroo.network.tls_sockets import Address, client_context, pinned_context
from wallaroo.runtime.standby.waiting import owner_of
from wallaroo.state.log.owners import process_words
from wallaroo.state.store.stored_checkpoint import checkpoint_folder

SEVERAL = 2  # exit code if the command line does not identify one application
_ADDRESS = re.compile(r"(?P<tls>https://)?(?P<host>\[[0-9a-fA-F:]+\]|[^\[\]:/]+):(?P<port>\d{1,5})")


@dataclass(frozen=True, slots=True)
class Target:
    """Address of a running application, and the credentials to present."""

    address: Address
    token: str = field(default="", repr=False)  # empty: that of the environment, if there is one
    pid: int | None = None  # the driver's, if it is on this machine
    context: ssl.SSLContext | None = field(default=None, repr=False)  # None: plain HTTP

    @property
    def dashboard(self) -> str:
        """Return the dashboard's address, without the token."""
        host, port = self.address
        scheme = "http" if self.context is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"

    @property
    def link(self) -> str:
        """Return the address that a browser opens."""
        token = self.token or os.environ.get(TOKEN_VARIABLE, "")
        return f"{self.dashboard}?token={quote(token)}" if token else self.dashboard

    def ask(self, path: str) -> Answer:
        """Request a path and return the answer.  Raises PeerError if there is none."""
        return ask(self.address, path, token=self.token, context=self.context)

    def status(self) -> RunStatus:
        """Return the application's status, with the address that was asked.

        Raises PeerError if there is no answer, or one of another version of this package.
        """
        body = json.loads(self.ask(STATUS_PATH).body)
        try:
            return replace(status_of(body), dashboard=self.dashboard)
        except (TypeError, AttributeError) as error:
            host, port = self.address
            raise PeerError(
                f"the application at {host}:{port} runs in another version of "
                "wallaroo-spark. `wallaroo status --json` shows its status as it is."
            ) from error


def is_place(word: str) -> bool:
    """Return whether a word is HOST:PORT, https://HOST:PORT, a folder or a URL, not a name."""
    return _ADDRESS.fullmatch(word) is not None or is_store_url(word) or Path(word).is_dir()


def target_of(where: str) -> Target:
    """Return the target at an address, or the run that uses a checkpoint."""
    found = _ADDRESS.fullmatch(where)
    if found and not Path(where).is_dir():
        address = found["host"].strip("[]"), int(found["port"])
        known = [record for record in running() if record.address == address]
        context = client_context(TLS()) if found["tls"] else None
        return as_target(known[0]) if known else Target(address, context=context)
    folder = checkpoint_folder(where)
    record = run_of(folder)
    seen = owner_of(folder)
    owner = seen.lease.owner if seen.is_led and seen.lease is not None else ""
    if record is not None and owner in ("", process_words(record.pid, record.host)):
        return _answering(where, record)
    CheckpointReader(checkpoint_here(where))  # raises if it is not a checkpoint
    if owner and not seen.is_gone:
        raise PeerError(
            f"{owner} leads checkpoint {where} and does not answer: it is starting, has no status "
            "address, or has failed. Its log says which; if it has failed, run it again."
        )
    last = f" The last run, {owner}, did not end in order: its log has the reason." if owner else ""
    raise PeerError(
        f"no application runs on checkpoint {where}.{last} Start it with `wallaroo run "
        f"--checkpoint {where}`."
    )


def _answering(where: str, record: RunRecord) -> Target:
    if not record.is_alive:
        raise PeerError(
            f"{record.application} no longer runs: process {record.pid}, which used {where}, "
            "has ended without a stop. What was committed is there; run it again to continue."
        )
    return as_target(record)


def only_one(command: str) -> Target | None:
    """Return the application that runs here; if there are several, print a list and return None."""
    runs = running()
    if not runs:
        raise PeerError(
            f"no application of this user runs on this machine. Elsewhere: wallaroo {command} "
            "HOST:PORT."
        )
    if len(runs) == 1:
        return as_target(runs[0])
    with contextlib.redirect_stdout(sys.stderr):
        print(f"wallaroo: {len(runs)} applications run here. Name one: wallaroo {command} WHERE")
        print_table(
            ("WHERE", "application", "process", "since", "checkpoint"),
            [_line(record) for record in runs],
        )
    return None


def _line(record: RunRecord) -> tuple[str, ...]:
    host, port = record.address
    since = datetime.datetime.fromtimestamp(record.started_at, datetime.UTC).strftime(
        "%Y-%m-%d %H:%M:%S UTC"
    )
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return where, record.application, str(record.pid), since, record.checkpoint


def as_target(record: RunRecord) -> Target:
    return Target(
        record.address,
        record.token,
        record.pid if record.is_here else None,
        pinned_context(record.certificate) if record.certificate else None,
    )
