"""The same jobs in other engines, each in a Python of its own: no dependency of the package."""
