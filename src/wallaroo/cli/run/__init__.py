"""``wallaroo run``: its options, its watching loop, and what a person sees of a run."""
