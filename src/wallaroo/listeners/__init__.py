"""Common parts of listeners: a bound on connections, deadlines, and the accept loop of
servers with a thread per connection.
"""
