"""Output of the application's functions in workers.

Everything that they print and log, sent to the driver's terminal.
"""
