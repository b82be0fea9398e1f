"""UDP: datagrams as events and outputs."""
