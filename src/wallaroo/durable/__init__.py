"""Small durable files: the one way to write a file whole, to lock, and to make private folders.

Where it runs: everywhere that writes to disk.
"""
