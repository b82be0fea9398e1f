"""The sink that speaks Wallaroo's connector protocol: outputs to a sink program, by two-phase
commit.
"""
