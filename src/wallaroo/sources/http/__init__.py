"""Events that HTTP clients post."""
