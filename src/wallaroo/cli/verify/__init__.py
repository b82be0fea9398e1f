"""``wallaroo verify``: fault injection and comparison with an oracle."""
