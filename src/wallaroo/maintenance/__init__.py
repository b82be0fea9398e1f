"""What is done to a checkpoint beside its runs: verify it, roll it back, remove state from it.

Where it runs: a terminal; the scrub runs in the driver.
"""
