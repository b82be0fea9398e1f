"""Rate and latency between Kafka topics."""
