"""The public interface of applications.

Where it runs: driver, while an application is built.
"""
