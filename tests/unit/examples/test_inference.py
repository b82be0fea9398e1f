"""The inference example answers as its model does, flower by flower and in order."""

from __future__ import annotations

import json
from typing import Any

import inference
import numpy as np
import pytest
from sklearn.datasets import load_iris

from wallaroo.testing import run_local

ARGS = ["--in", "flowers@localhost:0", "--out", "localhost:1"]


@pytest.mark.parametrize("runtime", ["sklearn", "onnx"])
def test_flowers_are_answered_in_order(runtime: str) -> None:
    data = load_iris().data.astype("f4")
    flowers = [
        json.dumps({"id": number, **dict(zip(inference.FEATURES, map(float, row), strict=True))})
        for number, row in enumerate(data)
    ]
    expected = inference.SPECIES[np.asarray(inference.trained().predict(data))]

    application: Any = inference.application_setup([*ARGS, "--runtime", runtime])
    inputs = {"flowers": [flower.encode() for flower in flowers]}
    done = run_local(application, inputs, batches=3, tasks=2)

    answers = [f"{number} {species}\n".encode() for number, species in enumerate(expected)]
    assert done.outputs == answers
