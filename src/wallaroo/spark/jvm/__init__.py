"""Spark's JVM: its process, settings and class archive."""
