"""A checkpoint seen from outside."""
