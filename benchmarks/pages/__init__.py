"""Pages and pictures made from the reports in ``results/``."""
