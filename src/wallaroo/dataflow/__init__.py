"""From a program to a plan: the graph, its checks, its stages."""
