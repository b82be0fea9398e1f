"""Nexmark: 24 queries on an online auction, their input, and the results that they must have."""
