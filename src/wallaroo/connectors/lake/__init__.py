"""Table formats of lakehouses, Delta Lake and Apache Iceberg, as sinks."""
