"""The standard output as a sink."""
