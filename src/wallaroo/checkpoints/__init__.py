"""Access to checkpoints from outside a run.

Where it runs: a terminal, beside a running application or without one, if a module does not say
otherwise.
"""
