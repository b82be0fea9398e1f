"""Spark's own sources: streams and tables that Spark can read."""
