"""Watermarks, times of partitions, and timers."""
