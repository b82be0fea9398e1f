"""Proof of exactly-once processing by killing processes under load.

An application runs under load, its processes are killed at random, and its output is compared with
an oracle.

Where it runs: a process of its own, beside the application.
"""
