"""Resident tasks: workers that keep state and connections between batches."""
