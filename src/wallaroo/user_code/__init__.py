"""The user's functions and values: references, signatures, pickling."""
