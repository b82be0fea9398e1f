"""Sinks that deliver committed batches from a queue.

Where it runs: the driver, if a module does not say otherwise.
"""
