"""The protocol between hosts for spool ranges and checkpoint files.

Where it runs: range server and workers (pure).

The protocol, version 2, over one TCP connection; numbers are big-endian:

1. The server sends ``SERVER_HELLO``: magic, version, a challenge (32 random bytes).
2. The client sends ``CLIENT_HELLO``: magic, version, a challenge of its own, and its proof
   (``wallaroo.network.hmac_auth``).
3. The server sends an ``ANSWER`` (status, length) with 32 bytes: its own proof.  A client that
   cannot prove itself gets the status REFUSED and words, and no more.
4. Any number of times: the client sends a ``REQUEST`` (kind, bytes of the name, two numbers), then
   the name.  The server sends an ``ANSWER``: OK with a length and that many bytes, or the status of
   an error and its words of that length in UTF-8.  The connection stays open after either, unless
   the client broke the protocol.  The kinds:

   * RANGE: a spool's folder without a path, first byte of the log, byte after the last one.  The
     answer is the log's bytes between the two, as they are in the segment files, chunk after chunk;
   * READ: a file of the checkpoint.  The answer is its content;
   * NAMES: a folder of the checkpoint.  The answer is a list in JSON of the names in it;
   * PUBLISH: a file that a task adds, 0, its size, and behind the name its content.  The answer is
     empty, and is sent when the complete file is there under its final name.

The invariant: neither side accepts anything but the hello from a peer that has not proved that it
knows the secret, and the secret itself is never sent.  The messages after the proofs are neither
encrypted nor signed: checksums of chunks and files detect damage, not attacks.  A broken connection
loses nothing: the client requests again, at the same or another place of the log; a file that was
published already is replaced by itself.
"""

import struct

from wallaroo.network.hmac_auth import CHALLENGE_BYTES, PROOF_BYTES

VERSION = 2
MAGIC = b"wlrrange"
SECRET_BYTES = 32
NAME_BYTES_MAX = 1024  # in a name with its folders; a part has 255 at most
TEXT_BYTES_MAX = 64 * 1024  # in an error's words

SERVER_HELLO = struct.Struct(f">8sI{CHALLENGE_BYTES}s")
CLIENT_HELLO = struct.Struct(f">8sI{CHALLENGE_BYTES}s{PROOF_BYTES}s")
ANSWER = struct.Struct(">BQ")
REQUEST = struct.Struct(">BHQQ")

RANGE = 0
READ = 1
NAMES = 2
PUBLISH = 3

# FULL: the disk did not take a file; words of a PeerError.  ABSENT: there is no such file.
# LOST: the log does not hold the range as it should; words of a CheckpointError
OK = 0
REFUSED = 1
LOST = 2
FULL = 3
ABSENT = 4
