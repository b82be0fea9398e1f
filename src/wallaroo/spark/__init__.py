"""Hosts on Spark, and its sessions, JVM and clusters.

Where it runs: driver.
"""
