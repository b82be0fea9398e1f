"""Producer side of a shuffle, and the outputs of a stage."""
