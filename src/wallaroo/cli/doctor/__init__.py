"""``wallaroo doctor``: looking at a machine, and judging what was seen."""
