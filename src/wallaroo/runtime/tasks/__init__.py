"""Execution of tasks, and its hosts.

Where it runs: workers, if a module does not say otherwise.
"""
