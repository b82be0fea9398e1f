"""Sources received by ingresses on several hosts."""
