"""The hosts of a cluster: which have joined, where tasks should run, how hosts join and leave."""
