"""``wallaroo doctor``: examination of a machine, and verdicts on the findings."""
