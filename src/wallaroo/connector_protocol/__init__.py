"""Wallaroo's connector protocol, version 3, as pure objects: bytes in, events and bytes out.

Where it runs: everywhere; pure.  Sockets and disks are the hosts' business.
"""
