"""A standby: a run that waits, warm, until it may replace the leader.

Where it runs: driver.
"""
