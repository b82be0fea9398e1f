"""The applications of ``wallaroo verify``, each a file for ``wallaroo run``.

Where it runs: driver and workers.
"""
