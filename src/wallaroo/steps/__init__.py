"""Steps: a user's functions as frozen values and pure machines.

Where it runs: everywhere; pure.
"""
