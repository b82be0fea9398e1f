"""Pure protocols: frames in a stream of bytes, lines, the connector protocol.

Where it runs: everywhere; pure.
"""
