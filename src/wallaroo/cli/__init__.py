"""The ``wallaroo`` command: one module per subcommand, each with ``add_parser(subparsers)`` that
sets its ``handler``.

Where it runs: driver, or a terminal beside it.  Nothing imports this package.
"""
