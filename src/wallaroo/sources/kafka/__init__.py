"""Kafka as a source: offsets in our commits, ranges read by workers."""
