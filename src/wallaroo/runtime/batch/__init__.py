"""One batch: planned, processed, committed.

Where it runs: driver.
"""
