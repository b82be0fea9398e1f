"""The hosts of a cluster: joining, leaving, and the placement of tasks."""
