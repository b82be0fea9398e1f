"""Types of keys."""

KeyPart = str | bytes | int
Key = KeyPart | tuple[KeyPart, ...]
WANTED = "str, bytes, int, or a tuple of these"
