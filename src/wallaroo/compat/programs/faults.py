"""Errors between a program and an application.

Where it runs: source and sink programs.
"""


class ConnectorError(Exception):
    """An error that the other side reports, or misuse of the connector."""


class ProtocolError(Exception):
    """A message, in either direction, that the protocol does not allow."""
