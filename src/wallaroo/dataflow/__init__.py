"""From a program to a plan: the graph, its checks, its stages.

Where it runs: driver, while an application is built; pure.
"""
