"""What goes wrong between a program and an application.

Where it runs: source and sink programs.
"""

from __future__ import annotations


class ConnectorError(Exception):
    """The other side reports an error, or the program uses its connector wrongly."""


class ProtocolError(Exception):
    """Something was sent, or is to be sent, that the protocol does not allow."""
