"""The egress: the process that sends one TCP sink's output."""
