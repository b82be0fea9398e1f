"""The egress: the process that sends one TCP sink's output.

Where it runs: the egress.  All but sockets and the clock is pure.
"""
