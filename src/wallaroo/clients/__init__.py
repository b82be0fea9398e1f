"""What sources, sinks and commands know together of a system outside: how to connect to it, and
what its errors mean.

Where it runs: driver and workers.
"""
