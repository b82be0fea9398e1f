"""Resident tasks: workers that keep their state and their connections from batch to batch."""
