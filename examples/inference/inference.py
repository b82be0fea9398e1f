"""Model inference: which iris is it?  A model answers many flowers with one call.

Flowers come in as JSON objects, one per line; each is answered with its species.  ``setup`` is
called once in each worker process, before the first flower, and what it returns is kept: the model.
It is small and trained on the spot, from data of scikit-learn; yours is loaded from a file.

With ``--runtime onnx`` the same model is run by ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import wallaroo

FEATURES = ["sepal_length", "sepal_width", "petal_length", "petal_width"]
SPECIES = np.array(["setosa", "versicolor", "virginica"])
FLOWER = pa.schema([("id", pa.int64()), *((name, pa.float32()) for name in FEATURES)])
BATCH = 1024  # flowers of one call: enough for what a call costs to be little beside what it does

Predict = Callable[[NDArray[np.float32]], NDArray[np.int64]]


def application_setup(args: list[str]) -> object:
    """Build the application: flowers -> their species."""
    in_name, in_host, in_port = wallaroo.tcp_parse_input_addrs(args)[0]
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]
    classify = classify_with_onnx if "onnx" in args else classify_with_sklearn

    flowers = wallaroo.source(
        "flowers",
        wallaroo.TCPSourceConfig(
            in_name, in_host, in_port, wallaroo.json_lines(FLOWER), framing="lines"
        ),
    )
    pipeline = flowers.to(classify).to_sink(
        wallaroo.TCPSinkConfig(out_host, out_port, encode_species)
    )
    return wallaroo.build_application("Iris", pipeline)


def trained() -> Any:
    """Train the model; the same data give the same model in every process."""
    iris = load_iris()
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
    return model.fit(iris.data.astype("f4"), iris.target)


def load_sklearn() -> Predict:
    """Return what scikit-learn answers with; once per worker."""
    model = trained()
    return lambda features: np.asarray(model.predict(features))


def load_onnx() -> Predict:
    """Return what ONNX Runtime answers with; once per worker."""
    import onnxruntime
    from skl2onnx import to_onnx

    content = to_onnx(trained(), np.zeros((1, len(FEATURES)), "f4")).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # each core has a worker of its own
    session = onnxruntime.InferenceSession(content, options)
    name = session.get_inputs()[0].name
    return lambda features: np.asarray(session.run(None, {name: features})[0])


def classify(rows: pa.RecordBatch, predict: Predict) -> pa.RecordBatch:
    """Answer a block of flowers, in their order."""
    features = np.column_stack([rows[name].to_numpy(zero_copy_only=False) for name in FEATURES])
    species = SPECIES[predict(features)]
    return pa.RecordBatch.from_pydict({"id": rows["id"], "species": pa.array(species)})


@wallaroo.batch_computation("classify with scikit-learn", setup=load_sklearn, batch=BATCH)
def classify_with_sklearn(rows: pa.RecordBatch, predict: Predict) -> pa.RecordBatch:
    """Answer a block of flowers."""
    return classify(rows, predict)


@wallaroo.batch_computation("classify with ONNX Runtime", setup=load_onnx, batch=BATCH)
def classify_with_onnx(rows: pa.RecordBatch, predict: Predict) -> pa.RecordBatch:
    """Answer a block of flowers."""
    return classify(rows, predict)


@wallaroo.encoder
def encode_species(row: dict[str, Any]) -> str:
    """Write an answer as a line."""
    return f"{row['id']} {row['species']}\n"
