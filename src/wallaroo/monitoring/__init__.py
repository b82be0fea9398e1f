"""Metrics of a run, the server that exposes them, and the dashboard.

Where it runs: the driver, if a module does not say otherwise.
"""
