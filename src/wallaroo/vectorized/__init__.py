"""Vectorized steps, and decoders of whole blocks.

``steps`` and ``row_error`` load no numpy, so that ``import wallaroo`` does not.
"""
