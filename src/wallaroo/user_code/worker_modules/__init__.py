"""The user's modules in workers: their versions, and values from set-up."""
