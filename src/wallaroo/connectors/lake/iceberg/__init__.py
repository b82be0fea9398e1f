"""Apache Iceberg: tables as sinks."""
