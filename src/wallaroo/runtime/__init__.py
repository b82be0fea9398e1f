"""A run, without Spark: its batches, its tasks, its start and its end.

Where it runs: the driver, if a module does not say otherwise.
"""
