"""Vectorized steps: what they are, and what decodes whole blocks.  ``steps`` and ``row_error`` load
no numpy, so that ``import wallaroo`` does not.
"""
