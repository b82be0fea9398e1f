"""Small durable files, locks and private folders.

Where it runs: everywhere that writes to disk.  There is one way to write a file whole, to lock, and
to create a private folder.
"""
