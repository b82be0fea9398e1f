"""The ingress and the feeders: processes that receive input and write it to spools.

Where it runs: the ingress, if a module does not say otherwise.
"""
