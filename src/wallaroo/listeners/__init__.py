"""What all listeners have in common: a bound on connections, deadlines, and the accept loop of
servers with a thread per connection.
"""
