"""The state of an application: commit log, views and copies.

Where it runs: the driver, if a module does not say otherwise.
"""
