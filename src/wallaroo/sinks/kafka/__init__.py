"""Kafka as a sink: one transaction for each commit, or idempotent at-least-once."""
