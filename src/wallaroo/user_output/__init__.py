"""What functions of the application print and log in workers, on its way to the driver's
terminal.
"""
