"""Steps: what a user's functions become, as frozen values and pure machines.

Where it runs: everywhere; pure.
"""
