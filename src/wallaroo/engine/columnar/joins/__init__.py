"""Joins of rows: columns of both sides that wait for the watermark, and their pairing."""
