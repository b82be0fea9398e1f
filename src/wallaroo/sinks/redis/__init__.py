"""Redis streams and hashes as sinks."""
