"""A checkpoint in an object store, of which the local folder is a cache."""
