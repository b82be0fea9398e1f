"""The protocol by which ranges of spools travel between hosts: its messages and its proofs.

Where it runs: range server and workers (pure).

The protocol, version 1, over one TCP connection; numbers are big-endian:

1. The server says ``SERVER_HELLO``: magic, version, a challenge (32 random bytes).
2. The client says ``CLIENT_HELLO``: magic, version, a challenge of its own, and its proof:
   HMAC-SHA256, keyed with the run's secret, of ``"client"``, the server's challenge and the
   client's.
3. The server says an ``ANSWER`` (status, length) with 32 bytes: its own proof, the same with
   ``"server"`` in front.  A client that cannot prove itself gets the status REFUSED and words, and
   no more.
4. Any number of times: the client says a ``REQUEST`` (bytes of the folder's name, first byte of the
   log, byte after the last one), then the name, without a path.  The server says an ``ANSWER``: OK
   and the log's bytes between the two, as they are in the segment files, chunk after chunk; or what
   is wrong and words of that length in UTF-8.  The connection stays open after either.

The invariant: neither side takes anything but the hello from one that has not proved that it knows
the secret, and the secret itself never travels here.  What follows the proofs is neither encrypted
nor signed: a chunk's checksum finds damage, not malice.  A connection that breaks loses nothing:
the client asks again, elsewhere in the log or at the same place.
"""

from __future__ import annotations

import hmac
import struct

VERSION = 1
MAGIC = b"wlrrange"
CHALLENGE_BYTES = 32
PROOF_BYTES = 32
SECRET_BYTES = 32
NAME_BYTES_MAX = 255  # of a folder's name; file systems allow no more
TEXT_BYTES_MAX = 64 * 1024  # of an error's words

SERVER_HELLO = struct.Struct(">8sI32s")
CLIENT_HELLO = struct.Struct(">8sI32s32s")
ANSWER = struct.Struct(">BQ")
REQUEST = struct.Struct(">HQQ")

# LOST: the log does not hold the range as it should; words of a CheckpointError
OK = 0
REFUSED = 1
LOST = 2


def proof_of(side: bytes, secret: bytes, server_challenge: bytes, client_challenge: bytes) -> bytes:
    """Prove that ``side`` (``b"client"`` or ``b"server"``) knows the secret, for this connection
    only.
    """
    return hmac.digest(secret, side + server_challenge + client_challenge, "sha256")


def is_proof(
    proof: bytes, side: bytes, secret: bytes, server_challenge: bytes, client_challenge: bytes
) -> bool:
    """Whether the other side's proof is one."""
    return hmac.compare_digest(proof, proof_of(side, secret, server_challenge, client_challenge))
