"""Loads, runs, processes and reports that the programs share."""
