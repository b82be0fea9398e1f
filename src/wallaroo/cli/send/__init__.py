"""``wallaroo send``: messages from a file or standard input, over TCP."""
