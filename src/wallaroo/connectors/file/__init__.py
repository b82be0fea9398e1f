"""Single files: lines or frames in, lines or frames out."""
