"""Execution of stages: operators, state, exchanges, time.

Where it runs: workers, and the in-process runner; pure.
"""
