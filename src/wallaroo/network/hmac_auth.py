"""Proofs that a peer knows a run's secret.

Where it runs: pure.

The secret itself is never sent: a proof is HMAC-SHA256 over a challenge of each side (RFC 2104,
6234).

The invariant: a proof is valid only on its own connection and for its own side.
"""

from __future__ import annotations

import hmac

CHALLENGE_BYTES = 32
PROOF_BYTES = 32


def sign(side: bytes, secret: bytes, server_challenge: bytes, client_challenge: bytes) -> bytes:
    """Return the proof that ``side`` (client, server) knows the secret, for one connection."""
    return hmac.digest(secret, side + server_challenge + client_challenge, "sha256")


def verify(
    proof: bytes, side: bytes, secret: bytes, server_challenge: bytes, client_challenge: bytes
) -> bool:
    """Return whether the other side's proof is valid."""
    return hmac.compare_digest(proof, sign(side, secret, server_challenge, client_challenge))
