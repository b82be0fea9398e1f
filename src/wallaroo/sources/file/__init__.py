"""The file source: workers read files in place."""
