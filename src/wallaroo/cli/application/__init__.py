"""Loading of applications, and their part of a command line."""
