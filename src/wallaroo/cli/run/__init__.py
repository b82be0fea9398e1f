"""``wallaroo run``: its options, watching loop and display of a run."""
