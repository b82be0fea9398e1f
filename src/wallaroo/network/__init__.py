"""Common parts of listeners.

A bound on connections, deadlines, and the accept loop of servers with a thread per connection.
"""
