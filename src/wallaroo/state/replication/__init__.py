"""A checkpoint's copy on a second host: keeper process and client."""
