"""Output of the application's functions in workers.

All that they print and log, on its way to the driver's terminal.
"""
