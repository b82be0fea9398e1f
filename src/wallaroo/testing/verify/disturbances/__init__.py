"""Disturbances of a verified run.

These are deaths, pauses, failing disks, damaged files, wrong clocks, lost hosts and networks.

Where it runs: the verifier.
"""
