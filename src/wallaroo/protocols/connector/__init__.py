"""Wallaroo's connector protocol, version 3: bytes in, events and bytes out.

Where it runs: everywhere; pure.  The hosts own sockets and disks.
"""
