"""Start, watch and end of a run.

Where it runs: driver.
"""
