"""One run under test: its processes, schedule, progress, ledger and result."""
