"""A run without Spark: batches, tasks, start and end.

Where it runs: the driver, if a module does not say otherwise.
"""
