"""``wallaroo dev``: an application in one process, again at each save."""
