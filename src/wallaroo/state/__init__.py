"""The state of an application: its log of commits, its views and its copies.

Where it runs: the driver, if a module does not say otherwise.
"""
