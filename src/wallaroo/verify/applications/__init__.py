"""The applications that ``wallaroo verify`` runs; each is a file that ``wallaroo run`` takes.

Where it runs: driver and workers.
"""
