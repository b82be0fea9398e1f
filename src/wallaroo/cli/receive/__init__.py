"""``wallaroo receive``: output of a TCP sink, printed, counted or saved."""
