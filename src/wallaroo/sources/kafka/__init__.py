"""Kafka as a source: offsets live in our commits, workers read ranges from the brokers."""
