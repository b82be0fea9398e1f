"""Savepoints: whole checkpoints of one commit, to start other runs from."""
