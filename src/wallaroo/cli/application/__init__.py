"""Finding an application, and the options that stand after it on a command line."""
