"""Sinks that deliver committed batches from a queue."""
