"""Child processes, their protocol with the parent, and the process table.

The package starts children, exchanges messages with them, and detects one that hangs or dies.
"""
