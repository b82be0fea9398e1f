"""``wallaroo receive``: what a TCP sink sends, cut into messages, counted or written to a file."""
