"""Ingresses on other hosts: the driver's side and theirs."""
