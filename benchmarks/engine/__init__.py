"""Cost and rate of the engine: events/s, CPU per event, and where it goes."""
