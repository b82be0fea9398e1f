"""Datagrams as events."""
