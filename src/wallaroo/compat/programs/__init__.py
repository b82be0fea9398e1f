"""Source and sink programs of Wallaroo, and their protocol."""
