"""Vectorized steps, and decoders of whole blocks.

Where it runs: workers; pure.

``steps`` and ``row_error`` load no numpy, so that ``import wallaroo`` does not.
"""
