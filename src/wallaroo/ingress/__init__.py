"""Processes that receive input and write it to spools.

They are the ingress and the feeders.

Where it runs: the ingress, if a module does not say otherwise.
"""
