"""``wallaroo doctor``: checks of a machine, and their verdicts."""
