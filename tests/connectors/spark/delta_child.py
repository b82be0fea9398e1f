"""An application that reads a Delta table by Delta's connector for Spark, to be killed.

Arguments: the table, a folder, and what reads: a stream, or the table as it is now.  Run again with
the same arguments it continues where it was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import wallaroo
from tests.connectors.spark.copies import copy_to_end
from wallaroo.sources import SparkSourceConfig

JARS = Path(__file__).resolve().parents[3] / ".servers" / "spark-delta"
STREAM = "stream"


@wallaroo.decoder
def text(row: dict[str, Any]) -> str:
    return str(row["id"])


def source(table: str, form: str) -> SparkSourceConfig[str]:
    """The configuration as docs/connectors/spark.md has it, with the connector from a folder."""

    def read(spark: Any) -> Any:
        if form == STREAM:
            return spark.readStream.option("maxFilesPerTrigger", 1).table(f"delta.`{table}`")
        return spark.read.table(f"delta.`{table}`")

    conf = {
        "spark.jars": ",".join(str(jar) for jar in sorted(JARS.glob("*.jar"))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.v2.enableMode": "STRICT",
    }
    return SparkSourceConfig("in", read, text, until_now=form == STREAM, conf=conf)


def main(table: str, folder: str, form: str) -> None:
    """Run until what there is now is read."""
    copy_to_end(source(table, form), Path(folder))
