"""Shuffle blocks: keys, packing and order."""
