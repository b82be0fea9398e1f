"""Figures of a run, the server that shows them, and the dashboard.

Where it runs: the driver, if a module does not say otherwise.
"""
