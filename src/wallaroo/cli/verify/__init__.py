"""``wallaroo verify``: disturb an application and compare it with an oracle."""
