"""``wallaroo profile``: time and memory of a running application."""
