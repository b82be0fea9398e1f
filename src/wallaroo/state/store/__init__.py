"""A checkpoint in an object store, with a local folder as cache."""
