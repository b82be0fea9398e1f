"""Metrics of a run, by subject.

Where it runs: driver.  Not safe to share between threads: `RunMeter` holds the lock.
"""
