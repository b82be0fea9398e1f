"""A run that listens on every kind of port, with few descriptors for each of its processes."""

from __future__ import annotations

import resource
import sys
import threading
from pathlib import Path

import wallaroo
from tests.unit.sources.own import line
from wallaroo.compat.source import SourceConnectorConfig
from wallaroo.connectors.tcp.source import TCPSourceConfig
from wallaroo.network.tls import TLS
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Json
from wallaroo.sources import HTTPSourceConfig, UDPSourceConfig, WebSocketServerSourceConfig

HOST = "127.0.0.1"
TOKEN = "the senders' token"


def certificate_in(folder: Path) -> TLS:
    return TLS(str(folder / "server.pem"), str(folder / "server.key"))


def application(out: Path, ports: list[int]) -> wallaroo.Application:
    """Return one that copies what comes, from whatever port."""
    text = Json(str, on_error="skip").decoder  # strangers send what is not JSON
    tcp, connector, http, websocket, tls, https, wss, udp = ports
    encrypted = certificate_in(out.parent)
    sources = [
        TCPSourceConfig("tcp", HOST, tcp, text, framing="lines"),
        SourceConnectorConfig("connector", None, text, connector, "cookie", 10, 2),
        HTTPSourceConfig("http", HOST, http, text, token=TOKEN),
        WebSocketServerSourceConfig("websocket", HOST, websocket, text, token=TOKEN),
        TCPSourceConfig("tls", HOST, tls, text, framing="lines", tls=encrypted),
        HTTPSourceConfig("https", HOST, https, text, token=TOKEN, tls=encrypted),
        WebSocketServerSourceConfig("wss", HOST, wss, text, token=TOKEN, tls=encrypted),
        UDPSourceConfig("udp", HOST, udp, text),
    ]
    first, *others = [wallaroo.source(source.name, source) for source in sources]
    for other in others:
        first = first.merge(other)
    return wallaroo.build_application(
        "listens", first.to_sink(wallaroo.FileSinkConfig(out, encoder=line))
    )


def main(root: str, files: str, scheme: str, acknowledged: str, status: str, *ports: str) -> None:
    """Run until stdin ends, or the run does; ``scheme``: of the status server."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(files), int(files)))
    options = RunOptions(
        checkpoint=Path(root, "state"),
        status_address=(HOST, int(status)),
        status_tls=certificate_in(Path(root)) if scheme == "https" else None,
        ack_ports={"tcp": int(acknowledged)},
    )
    made = application(Path(root, "out.txt"), [int(port) for port in ports])
    run = Run(made, options, InProcessHost(1))
    run.begin()
    threading.Thread(target=lambda: (sys.stdin.read(), run.stop()), daemon=True).start()
    while not run.wait(1.0):
        pass
    if run.exception is not None:
        raise run.exception


if __name__ == "__main__":
    main(*sys.argv[1:])
