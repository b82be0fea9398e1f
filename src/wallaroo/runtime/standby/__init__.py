"""A standby: a run that waits, warm, until it may continue in place of the one that leads.

Where it runs: driver.
"""
