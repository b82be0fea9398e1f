"""The HTTP server of a running application.

It serves its status, Wallaroo's queries, metrics and the dashboard.

Where it runs: driver, in threads of its own.

It only reads: no request changes the run.  It listens on the loopback address unless configured
otherwise; access is decided in ``status_api.access``.
"""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

from wallaroo.errors import PeerError
from wallaroo.monitoring.status_api.access import access_for
from wallaroo.monitoring.status_api.discovery import Registration, RunRecord, register
from wallaroo.monitoring.status_api.entities import EntityReader
from wallaroo.monitoring.status_api.http import REQUEST_S_MAX, HttpServer, Router
from wallaroo.monitoring.status_api.routes import Running, routes
from wallaroo.network.tls import TLS
from wallaroo.network.tls_sockets import server_context


class StatusServer:
    """The server of one run, to which ``run.json`` leads."""

    def __init__(
        self,
        handle: Running,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        tls: TLS | None = None,
        request_s: float = REQUEST_S_MAX,
    ):
        self._handle = handle
        self._host = host
        self._port = port
        self.token = token
        self._tls = tls
        self._request_s = request_s
        self._server: HttpServer | None = None
        self._registration: Registration | None = None
        self._entities = EntityReader(handle.root, handle.plan.state_steps)
        self._is_closed = threading.Event()

    @property
    def address(self) -> tuple[str, int]:
        """Return the address it listens on; the port is known once it has started."""
        return self._host, self._port

    @property
    def dashboard(self) -> str:
        """Return the dashboard's address, without the token."""
        return f"{'https' if self._tls else 'http'}://{self._place}/"

    @property
    def _place(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    def start(self, *, is_leading: bool = True) -> None:
        """Listen, register; in the checkpoint only as its leader.

        Raises PeerError: address, TLS file or checkpoint.
        """
        router = Router(routes(self._handle, self._entities, self._is_closed))
        context = server_context(self._tls) if self._tls else None
        try:
            server = HttpServer(self._host, self._port, router, context, self._request_s)
        except OSError as error:
            where = f"{self._host}:{self._port}"
            raise PeerError(
                f"the status server cannot listen on {where}: {error.strerror or error}. Choose "
                f"another port; 0 takes a free one."
            ) from error
        try:
            server.access = access_for(self._host, server.server_port, self.token)
        except PeerError:
            server.close()
            raise
        self._port = server.server_port
        self.token = server.access.token
        self._server = server
        threading.Thread(target=server.serve, name="wallaroo-status", daemon=True).start()
        try:
            self._registration = register(self._handle.root if is_leading else None, self._record())
        except PeerError:
            self.close()
            raise

    def lead(self) -> None:
        """Register in the checkpoint, too: this run leads from now on.  Raises PeerError."""
        self._registration = register(self._handle.root, self._record())

    def close(self) -> None:
        """Stop answering, after removing the files that led here.  Safe to repeat."""
        if self._registration is not None:
            self._registration.withdraw()
        self._is_closed.set()
        self._entities.close()
        server = self._server
        self._server = None
        if server is not None:
            server.end()

    def _record(self) -> RunRecord:
        return RunRecord(
            pid=os.getpid(),
            http=self._place,
            application=self._handle.plan.application,
            started_at=self._handle.status().started_at,
            host=socket.gethostname(),
            checkpoint=str(self._handle.root),
            token=self.token,
            certificate=Path(self._tls.certificate).read_text("ascii") if self._tls else "",
        )
