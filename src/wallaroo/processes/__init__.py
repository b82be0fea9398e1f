"""Child processes: how they are started, what they and their parent say to each other, and how one
that hangs or dies is noticed; and the table of all processes.
"""
