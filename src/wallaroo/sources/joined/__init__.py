"""Sources that ingresses on several hosts receive."""
