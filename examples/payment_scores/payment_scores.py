"""Payment scores: a scikit-learn model on features that pandas makes, a block of rows at a time.

Payments come in as JSON lines of a file; each leaves with its probability of being fraud.  The
model is trained once in each worker process, on made-up data; yours is loaded from a file.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.linear_model import LogisticRegression

import wallaroo

PAYMENT = pa.schema(
    [("id", pa.int64()), ("amount", pa.float64()), ("hour", pa.int64()), ("country", pa.string())]
)
HOME = "NL"


def application_setup(args: list[str]) -> wallaroo.Application:
    """Build the application: payments -> payments with their scores."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--payments", default="payments.jsonl")
    parser.add_argument("--out", default="scores.jsonl")
    options = parser.parse_args(args)

    payments = wallaroo.source(
        "payments",
        wallaroo.FileSourceConfig("payments", options.payments, wallaroo.json_lines(PAYMENT)),
    )
    return wallaroo.build_application(
        "Payment scores",
        payments.to(score).to_sink(wallaroo.FileSinkConfig(options.out, as_json, form="lines")),
    )


def features(payments: pd.DataFrame) -> pd.DataFrame:
    """Return what the model looks at, a row for each payment."""
    return pd.DataFrame(
        {
            "size": np.log1p(payments["amount"]),
            "is_night": (payments["hour"] < 6).astype("f8"),
            "is_abroad": (payments["country"] != HOME).astype("f8"),
        }
    )


def trained() -> LogisticRegression:
    """Train the model; the same data give the same model in every process."""
    random = np.random.default_rng(7)
    rows = 2_000
    payments = pd.DataFrame(
        {
            "amount": random.exponential(80, rows),
            "hour": random.integers(0, 24, rows),
            "country": random.choice([HOME, "DE", "US"], rows),
        }
    )
    seen = features(payments)
    risk = seen["size"] - 5 + 2 * seen["is_night"] + seen["is_abroad"]
    is_fraud = random.random(rows) < 1 / (1 + np.exp(-risk))
    return LogisticRegression().fit(seen, is_fraud)


@wallaroo.batch_computation("score", setup=trained, batch=4096)
def score(payments: pd.DataFrame, model: Any) -> pd.DataFrame:
    """Answer a block of payments with one call of the model."""
    scores = model.predict_proba(features(payments))[:, 1]
    return pd.DataFrame({"id": payments["id"], "score": scores.round(6)})


@wallaroo.encoder
def as_json(row: dict[str, Any]) -> str:
    """Write a score as JSON."""
    return json.dumps({"id": int(row["id"]), "score": float(row["score"])})
