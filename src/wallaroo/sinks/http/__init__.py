"""Outputs posted to HTTP servers."""
