"""Figures of a run, the server that shows them, and the dashboard."""
