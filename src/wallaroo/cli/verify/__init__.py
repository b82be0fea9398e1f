"""``wallaroo verify``: disturbances of an application, and comparison with an oracle."""
