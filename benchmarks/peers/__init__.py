"""The same jobs in other engines, each in a Python of its own: never a dependency of the package."""
