"""Cost of windows, joins, timers and expiry."""
