"""Sources that one process feeds into a spool.

Where it runs: feeder processes.
"""
