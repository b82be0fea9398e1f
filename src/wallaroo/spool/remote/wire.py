"""The protocol for ranges of spools between hosts: its messages and proofs.

Where it runs: range server and workers (pure).

The protocol, version 1, over one TCP connection; numbers are big-endian:

1. The server sends ``SERVER_HELLO``: magic, version, a challenge (32 random bytes).
2. The client sends ``CLIENT_HELLO``: magic, version, a challenge of its own, and its proof
   (``wallaroo.network.hmac_auth``).
3. The server sends an ``ANSWER`` (status, length) with 32 bytes: its own proof.  A client that
   cannot prove itself gets the status REFUSED and words, and no more.
4. Any number of times: the client sends a ``REQUEST`` (bytes of the folder's name, first byte of
   the log, byte after the last one), then the name, without a path.  The server sends an
   ``ANSWER``: OK and the log's bytes between the two, as they are in the segment files, chunk after
   chunk; or the status of an error and its words of that length in UTF-8.  The connection stays
   open after either.

The invariant: neither side accepts anything but the hello from a peer that has not proved that it
knows the secret, and the secret itself never travels here.  The messages after the proofs are
neither encrypted nor signed: a chunk's checksum finds damage, not malice.  A connection that
breaks loses nothing: the client asks again, elsewhere in the log or at the same place.
"""

from __future__ import annotations

import struct

from wallaroo.network.hmac_auth import CHALLENGE_BYTES, PROOF_BYTES

VERSION = 1
MAGIC = b"wlrrange"
SECRET_BYTES = 32
NAME_BYTES_MAX = 255  # in a folder's name; file systems allow no more
TEXT_BYTES_MAX = 64 * 1024  # in an error's words

SERVER_HELLO = struct.Struct(f">8sI{CHALLENGE_BYTES}s")
CLIENT_HELLO = struct.Struct(f">8sI{CHALLENGE_BYTES}s{PROOF_BYTES}s")
ANSWER = struct.Struct(">BQ")
REQUEST = struct.Struct(">HQQ")

# LOST: the log does not hold the range as it should; words of a CheckpointError
OK = 0
REFUSED = 1
LOST = 2
