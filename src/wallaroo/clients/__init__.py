"""Shared code for connecting to external systems and judging their errors.

Where it runs: driver and workers.

Sources, sinks and commands use it.
"""
