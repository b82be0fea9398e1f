"""Blocks of a shuffle: keys, packing and their order."""
