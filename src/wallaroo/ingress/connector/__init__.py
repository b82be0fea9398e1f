"""Connector sources in the ingress: the protocol's sockets and its notes in the spool."""
