"""``wallaroo send``: messages from files or numbers, over TCP or to Kafka."""
