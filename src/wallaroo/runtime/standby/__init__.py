"""A standby: a warm run that waits to replace the leader.

Where it runs: driver.
"""
