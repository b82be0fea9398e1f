"""Finding an application, and the options that follow it on a command line."""
