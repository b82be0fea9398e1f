"""The class-based API of 2017, a thin layer over the current one."""
