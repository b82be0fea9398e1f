"""Benchmarks: programs that measure what this project claims.  README.md says how to run them and
what each measures.
"""
