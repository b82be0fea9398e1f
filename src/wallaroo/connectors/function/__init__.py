"""A function of the user as a sink."""
