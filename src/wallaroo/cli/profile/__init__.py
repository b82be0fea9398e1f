"""``wallaroo profile``: where a running application's time and memory go."""
