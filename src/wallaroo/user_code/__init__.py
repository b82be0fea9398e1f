"""The user's functions and values: references, signatures, pickling.

Where it runs: everywhere, if a module does not say otherwise.
"""
