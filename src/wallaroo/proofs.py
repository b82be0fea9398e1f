"""How two sides of a connection show each other that they know a run's secret, which itself never
travels: HMAC-SHA256 over a challenge of each side (RFC 2104, 6234).

Where it runs: pure.

The invariant: a proof is worth something on its own connection only, and of its own side only.
"""

from __future__ import annotations

import hmac

CHALLENGE_BYTES = 32
PROOF_BYTES = 32


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
