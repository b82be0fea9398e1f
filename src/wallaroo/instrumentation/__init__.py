"""Fault points, trace points and tunable sizes."""
