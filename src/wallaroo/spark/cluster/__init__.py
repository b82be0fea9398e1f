"""The hosts of a cluster: who has joined, where tasks are wanted, how a host joins and leaves."""
