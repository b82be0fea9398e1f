"""The sink that speaks Wallaroo's connector protocol.

Outputs go to a sink program, by two-phase commit.
"""
