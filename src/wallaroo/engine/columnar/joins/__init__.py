"""Joins of rows: buffered columns of both sides, and their pairing."""
