"""Proof of exactly-once processing by killing processes under load.

Where it runs: the verifier, a process of its own beside the application.  An application runs under
load, its processes are killed at random, and its output is compared with an oracle.
"""
