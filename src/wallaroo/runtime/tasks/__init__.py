"""The work of tasks, and its hosts."""
