"""Outputs as datagrams."""
