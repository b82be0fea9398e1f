"""Many files and objects: read in parallel, written by size and time."""
