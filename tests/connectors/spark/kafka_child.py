"""An application that reads a topic by Kafka's connector for Spark, to be killed and run again.

Arguments: brokers, topic, folder, and what reads: a stream, or a table up to what is there now.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import wallaroo
from tests.connectors.spark.copies import copy_to_end
from wallaroo.sources import SparkSourceConfig

JARS = Path(__file__).resolve().parents[3] / ".servers" / "spark-kafka"
PER_BATCH = 600
STREAM = "stream"


@wallaroo.decoder
def text(row: dict[str, Any]) -> str:
    return bytes(row["value"]).decode()


def source(brokers: str, topic: str, form: str) -> SparkSourceConfig[str]:
    """The configuration as docs/connectors/spark.md has it, with the connector from a folder."""

    def read(spark: Any) -> Any:
        reader = spark.readStream if form == STREAM else spark.read
        options = {
            "kafka.bootstrap.servers": brokers,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        if form == STREAM:
            options["maxOffsetsPerTrigger"] = str(PER_BATCH)
        return reader.format("kafka").options(**options).load().select("value")

    jars = ",".join(str(jar) for jar in sorted(JARS.glob("*.jar")))
    conf = {"spark.jars": jars}
    return SparkSourceConfig("in", read, text, until_now=form == STREAM, conf=conf)


def main(brokers: str, topic: str, folder: str, form: str) -> None:
    """Run until what there is now is read."""
    copy_to_end(source(brokers, topic, form), Path(folder))
