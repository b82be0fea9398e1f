"""Text for terminals: numbers, tables, addresses."""
