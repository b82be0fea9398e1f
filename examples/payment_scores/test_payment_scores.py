"""The scores are those of the model, however payments are divided into blocks."""

from __future__ import annotations

import json

import pandas as pd
from payment_scores import application_setup, features, trained

from wallaroo.testing import run_local

PAYMENTS = [
    {
        "id": number,
        "amount": 13.0 * number,
        "hour": number % 24,
        "country": ("NL", "DE")[number % 2],
    }
    for number in range(50)
]


def test_each_payment_gets_the_score_of_the_model() -> None:
    frame = pd.DataFrame(PAYMENTS)
    expected = trained().predict_proba(features(frame))[:, 1].round(6).tolist()

    for batches in (1, 4):
        lines = [json.dumps(payment).encode() for payment in PAYMENTS]
        run = run_local(application_setup([]), {"payments": lines}, batches=batches)
        scores = {row["id"]: row["score"] for row in map(json.loads, run.outputs)}

        assert [scores[number] for number in range(50)] == expected
