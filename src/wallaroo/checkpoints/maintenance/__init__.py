"""Maintenance of a checkpoint: verification, rollback, removal of state.

Where it runs: a terminal; the scrub runs in the driver.
"""
