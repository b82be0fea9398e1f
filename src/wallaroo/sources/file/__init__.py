"""The file source: files are read in place, by the workers."""
