"""Proof by killing: an application under load, its processes killed at random, its output held
against an oracle.

Where it runs: a process of its own, beside the application.
"""
