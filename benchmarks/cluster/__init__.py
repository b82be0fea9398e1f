"""Clusters that grow, shrink and lose workers."""
