"""Access to checkpoints from outside a run.

Where it runs: a terminal, with or without a running application, unless a module states otherwise.
"""
