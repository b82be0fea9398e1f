"""``wallaroo dev``: an application in one process, reloaded on save."""
