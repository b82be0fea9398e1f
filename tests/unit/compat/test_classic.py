"""The API of 2017: class-based applications run as they were written."""

from __future__ import annotations

import json
import pickle
import struct
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import wallaroo
from wallaroo.cli.application.loading import load_application
from wallaroo.connectors.kafka.output import unpack
from wallaroo.errors import UserCodeError, WallarooParameterError
from wallaroo.sinks import RedisSinkConfig, RollingSinkConfig
from wallaroo.testing import LocalRun, run_local

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


class Decoder:
    def header_length(self) -> int:
        return 4

    def payload_length(self, header: bytes) -> int:
        return int(struct.unpack(">I", header)[0])

    def decode(self, payload: bytes) -> str:
        return payload.decode()


class LittleDecoder(Decoder):
    def header_length(self) -> int:
        return 2

    def payload_length(self, header: bytes) -> int:
        return int(struct.unpack("<H", header)[0])


class DigitsDecoder(Decoder):
    def payload_length(self, header: bytes) -> int:
        return int(header)


class OddDecoder(Decoder):
    def payload_length(self, header: bytes) -> int:
        return 7


class Encoder:
    def encode(self, output: Any) -> str:
        return f"{output};"


class Upper:
    def name(self) -> str:
        return "upper"

    def compute(self, word: str) -> str | None:
        return word.upper() if word != "-" else None


class Totals:
    def __init__(self) -> None:
        self.count = 0


class TotalsBuilder:
    def build(self) -> Totals:
        return Totals()


class Count:
    def name(self) -> str:
        return "count"

    def compute(self, word: str, totals: Totals) -> tuple[Any, bool]:
        totals.count += 1
        return f"{word} {totals.count}", True


class Add:
    """Changes the state and puts nothing out."""

    def name(self) -> str:
        return "count"

    def compute_multi(self, word: str, totals: Totals) -> tuple[list[Any], bool]:
        totals.count += 10
        return [], True


class First:
    def partition(self, word: str) -> str:
        return word[0]


class Number:
    def partition(self, word: str) -> int:
        return len(word)


class Pair:
    def partition(self, word: str) -> tuple[str, int]:
        return word[0], len(word)


def source(decoder: Any = None) -> Any:
    return wallaroo.TCPSourceConfig("127.0.0.1", "0", decoder or Decoder())  # type: ignore[arg-type]  # the old form


def sink(port: int = 7002) -> wallaroo.TCPSinkConfig:
    return wallaroo.TCPSinkConfig("127.0.0.1", str(port), Encoder())  # type: ignore[arg-type]  # the old form


def builder() -> wallaroo.ApplicationBuilder:
    return wallaroo.ApplicationBuilder("App").new_pipeline("words", source())


def outputs(run: LocalRun) -> list[bytes]:
    return sorted(run.outputs)


def local(application: Any, **inputs: list[bytes]) -> LocalRun:
    return run_local(application, inputs)


def test_computations_and_state_partitions_run() -> None:
    application = (
        builder()
        .to(Upper)
        .to_state_partition(Count(), TotalsBuilder(), "totals", First(), ["A", "B"])
        .to_sink(sink())
        .build()
    )
    run = local(application, words=[b"a", b"b", b"-", b"a", b"c", b"c"])
    assert outputs(run) == [b"A 1;", b"A 2;", b"B 1;"]
    assert run.dropped["key of totals"] == {"filtered": 2}


def test_a_state_for_all_events() -> None:
    application = builder().to_stateful(Count(), TotalsBuilder(), "totals").to_sink(sink()).build()
    run = local(application, words=[b"a", b"b", b"c"])
    assert outputs(run) == [b"a 1;", b"b 2;", b"c 3;"]


@pytest.mark.parametrize(
    ("partition", "keys"),
    [(Pair(), [("a", 1), ("b", 1)]), (First(), ["a", "b"])],
    ids=["tuples", "text"],
)
def test_keys_may_be_any_hashable_objects(partition: Any, keys: list[Any]) -> None:
    application = (
        builder()
        .to_state_partition(Count(), TotalsBuilder(), "totals", partition, keys)
        .to_sink(sink())
        .build()
    )
    assert outputs(local(application, words=[b"a", b"b", b"a", b"c"])) == [
        b"a 1;",
        b"a 2;",
        b"b 1;",
    ]


class Letter:
    """A key that is known by its letter, and has the default repr."""

    def __init__(self, letter: str):
        self.letter = letter

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Letter) and other.letter == self.letter

    def __hash__(self) -> int:
        return hash(self.letter)


class ByLetter:
    def partition(self, word: str) -> Letter:
        return Letter(word[0])


class ByList:
    def partition(self, word: str) -> list[str]:
        return [word]


def counted(partition: Any, *keys: Any, before: type[Any] | None = None) -> Any:
    lines = builder() if before is None else builder().to(before)
    partitioned = lines.to_state_partition(Count(), TotalsBuilder(), "totals", partition, *keys)
    return partitioned.to_sink(sink()).build()


def test_keys_that_are_objects_are_known_by_equality() -> None:
    application = counted(ByLetter(), [Letter("a"), Letter("b")])
    again = pickle.loads(cloudpickle.dumps(Letter("a")))
    assert again == Letter("a")

    run = local(application, words=[b"a", b"b", b"a", b"c", b"a"])

    assert outputs(run) == [b"a 1;", b"a 2;", b"a 3;", b"b 1;"]


class Unsendable:
    """Returns objects that no other process can read."""

    def name(self) -> str:
        return "unsendable"

    def compute(self, word: str) -> Any:
        return [word, lambda: word]


class ByFirst:
    def partition(self, pair: list[Any]) -> str:
        return str(pair[0])


@pytest.mark.parametrize(
    ("application", "why"),
    [
        (counted(ByLetter()), "a Letter, whose repr\\(\\) is its address"),
        (counted(ByList(), ["a"]), r"the partition key \['a'\] is not hashable"),
        (counted(ByFirst(), ["a", "b"], before=Unsendable), "pickle"),
    ],
    ids=["address", "unhashable", "unsendable"],
)
def test_an_event_that_has_no_key_or_cannot_be_sent_ends_the_run(
    application: Any, why: str
) -> None:
    with pytest.raises(UserCodeError, match=why):
        run_local(application, {"words": [b"a", b"b"]}, tasks=2)


class Forgetful:
    """Returns its output alone, as today's state computations do."""

    def name(self) -> str:
        return "forgetful"

    def compute(self, word: str, totals: Totals) -> Any:
        return f"{word}!" if word != "-" else None


class ForgetfulOfSeveral:
    def name(self) -> str:
        return "forgetful of several"

    def compute_multi(self, word: str, totals: Totals) -> Any:
        return f"{word}!" if word != "-" else None


@pytest.mark.parametrize("computation", [Forgetful, ForgetfulOfSeveral])
def test_an_output_without_the_word_on_saving_is_not_taken_apart(computation: Any) -> None:
    built = builder().to_stateful(computation(), TotalsBuilder(), "totals").to_sink(sink()).build()
    assert run_local(built, {"words": [b"-"]}).outputs == []
    with pytest.raises(UserCodeError, match=r"it returned 'tea!'; .* returns \(output, save\)"):
        run_local(built, {"words": [b"tea"]})


def test_keys_that_are_numbers() -> None:
    application = (
        builder()
        .to_state_partition_u64(Count(), TotalsBuilder(), "totals", Number(), [1, 2])
        .to_sink(sink())
        .build()
    )
    assert outputs(local(application, words=[b"a", b"bb", b"c", b"ddd"])) == [
        b"a 1;",
        b"bb 1;",
        b"c 2;",
    ]


def test_pipelines_share_a_state_by_its_name() -> None:
    application = (
        wallaroo.ApplicationBuilder("App")
        .new_pipeline("adding", source())
        .to_state_partition(Add(), TotalsBuilder(), "totals", First(), ["a", "b"])
        .done()
        .new_pipeline("counting", source())
        .to_parallel(Upper)
        .to_state_partition(Count(), TotalsBuilder(), "totals", Lower(), ["a", "b"])
        .to_sink(sink())
        .build()
    )
    run = local(application, adding=[b"a", b"b", b"a"], counting=[b"a", b"b"])
    assert outputs(run) == [b"A 21;", b"B 11;"]


class OtherBuilder:
    def build(self) -> Decoder:
        return Decoder()


def shared_by(second: Any, keys: list[Any]) -> Any:
    return (
        wallaroo.ApplicationBuilder("App")
        .new_pipeline("adding", source())
        .to_state_partition(Add(), TotalsBuilder(), "totals", First(), ["a", "b"])
        .done()
        .new_pipeline("counting", source())
        .to_state_partition(Count(), second, "totals", First(), keys)
        .to_sink(sink())
        .build()
    )


class Lower:
    def partition(self, word: str) -> str:
        return word[0].lower()


def test_each_pipeline_has_its_own_sink() -> None:
    application = (
        wallaroo.ApplicationBuilder("App")
        .new_pipeline("one", source())
        .to(Upper)
        .to_sink(sink(7002))
        .new_pipeline("two", source())
        .to_sink(sink(7003))
        .build()
    )
    run = local(application, one=[b"a"], two=[b"b"])
    assert list(run.by_sink.values()) == [[b"A;"], [b"b;"]]


def test_a_pipeline_may_have_several_sinks() -> None:
    ends = [sink(), wallaroo.TCPSinkConfig("127.0.0.1", 7011, Encoder())]  # type: ignore[arg-type]
    run = run_local(builder().to(Upper).to_sinks(ends).build(), {"words": [b"a"]})
    assert list(run.by_sink.values()) == [[b"A;"], [b"A;"]]
    with pytest.raises(WallarooParameterError, match="Expecting a list of sinks"):
        builder().to_sinks([])


def test_two_states_in_a_row() -> None:
    application = (
        builder()
        .to_state_partition(Count(), TotalsBuilder(), "one", First(), ["a", "b"])
        .to_stateful(Count(), TotalsBuilder(), "all")
        .to_sink(sink())
        .build()
    )
    assert outputs(local(application, words=[b"a", b"a"])) == [b"a 1 1;", b"a 2 2;"]


def test_what_a_partition_function_raises_ends_the_run() -> None:
    application = (
        builder()
        .to_state_partition(Count(), TotalsBuilder(), "totals", First(), ["a"])
        .to_sink(sink())
        .build()
    )
    with pytest.raises(UserCodeError, match="IndexError"):
        local(application, words=[b""])


def test_a_decoders_header_is_found_out() -> None:
    application = (
        wallaroo.ApplicationBuilder("App")
        .new_pipeline("words", source(LittleDecoder()))
        .to_sink(sink())
        .build()
    )
    run = run_local(application, {"words": b"\x01\x00a\x02\x00bb"})
    assert outputs(run) == [b"a;", b"bb;"]


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: builder().to(Upper()), "Expecting a Computation class. Got an instance instead."),
        (lambda: builder().to_parallel(Upper()), "Expecting a Computation class. Got an instance"),
        (
            lambda: builder().to_stateful(Count, TotalsBuilder(), "s"),
            "Expecting a Computation Builder instance. Got a class instead.",
        ),
        (
            lambda: builder().to_stateful(Count(), TotalsBuilder, "s"),
            "Expecting a State Builder instance. Got a class instead.",
        ),
        (
            lambda: builder().to_state_partition(Count(), TotalsBuilder(), "s", First(), "ab"),  # type: ignore[arg-type]
            "Expecting a partition_keys list. Got a <class 'str'> instead.",
        ),
        (
            lambda: wallaroo.ApplicationBuilder("App").new_pipeline("w", source(OddDecoder())),
            "not as one unsigned number",
        ),
        (
            lambda: wallaroo.ApplicationBuilder("App").new_pipeline("w", source(DigitsDecoder())),
            "not as one unsigned number",
        ),
        (
            lambda: builder().to_state_partition(Count(), TotalsBuilder(), "s", First(), [["a"]]),
            "The partition key ['a'] is not hashable.",
        ),
        (
            lambda: builder().to_state_partition(Count(), TotalsBuilder(), "s", First(), [1, 2, 1]),
            "The partition key 1 is there twice.",
        ),
        (
            lambda: shared_by(OtherBuilder(), ["a", "b"]),
            "Pipelines 'adding' and 'counting' share it, and are of Totals and Decoder.",
        ),
        (
            lambda: shared_by(TotalsBuilder(), ["a", "c"]),
            "Pipelines 'adding' and 'counting' share it, and have different partition keys.",
        ),
        (lambda: builder().to_sink(sink()).to(Upper), "There is no open pipeline."),
        (lambda: builder().build(), "It is open."),
        (lambda: builder().done().build(), "All pipelines end in done()"),
        (
            lambda: (
                builder()
                .to_stateful(Count(), TotalsBuilder(), "s")
                .to_stateful(Count(), TotalsBuilder(), "s")
                .to_sink(sink())
                .build()
            ),
            "Use each state once in a pipeline",
        ),
    ],
)
def test_what_is_wrong_is_said_in_wallaroos_words(build: Any, text: str) -> None:
    with pytest.raises(WallarooParameterError) as caught:
        build()
    assert text in str(caught.value)


@wallaroo.computation_multi(name="words of 2018")
def words_of_2018(text: str) -> list[str]:
    return text.split()


@wallaroo.state_computation(name="count of 2018")
def count_of_2018(word: str, totals: Totals) -> tuple[str, bool]:
    totals.count += 1
    return f"{word} {totals.count}", True


@wallaroo.state_computation_multi(name="twice of 2018")
def twice_of_2018(word: str, totals: Totals) -> tuple[list[str], bool]:
    totals.count += 1
    return [word, f"{totals.count}"], False


@wallaroo.partition
def first_letter(word: str) -> str:
    return word[0]


def test_the_decorators_of_2018_build_applications() -> None:
    application = (
        builder()
        .to_parallel(words_of_2018)
        .to_state_partition(count_of_2018, Totals, "totals", first_letter)
        .to_stateful(twice_of_2018, Totals, "all")
        .to_sink(sink())
        .build()
    )
    run = run_local(pickle.loads(cloudpickle.dumps(application)), {"words": [b"a b a"]})
    wanted = [b"a 1;", b"a 2;", b"b 1;", b"1;", b"2;", b"3;"]
    assert sorted(run.outputs) == sorted(wanted)


def test_partition_keys_that_are_given_are_all_there_are() -> None:
    application = (
        builder()
        .to(words_of_2018)
        .to_state_partition(count_of_2018, Totals, "totals", first_letter, ["a"])
        .to_sink(sink())
        .build()
    )
    assert run_local(application, {"words": [b"a b a"]}).outputs == [b"a 1;", b"a 2;"]


class Numbers:
    def initial_value(self) -> int:
        return 1

    def apply(self, value: int) -> int | None:
        return value + 1 if value < 3 else None


@wallaroo.decoder(header_length=4, length_fmt=">I")
def texts(payload: bytes) -> str:
    return payload.decode()


@wallaroo.encoder
def in_text(event: Any) -> str:
    return f"{event};"


def test_a_source_of_2018_has_the_name_of_its_pipeline() -> None:
    of_tcp: Any = wallaroo.TCPSourceConfig("127.0.0.1", 0, texts)  # type: ignore[arg-type]
    words = wallaroo.source("words", of_tcp).to_sink(wallaroo.StdoutSinkConfig(in_text))
    assert run_local(wallaroo.build_application("a", words), {"words": [b"tea"]}).outputs == [
        b"tea;"
    ]
    of_numbers: Any = wallaroo.GenSourceConfig(Numbers())  # type: ignore[arg-type]
    numbers = wallaroo.source("numbers", of_numbers).to_sink(wallaroo.StdoutSinkConfig(in_text))
    application = wallaroo.build_application("b", numbers)
    assert run_local(application, {"numbers": [1, 2]}).outputs == [b"1;", b"2;"]


def test_a_state_computation_of_today_is_refused_where_2018_has_another_one() -> None:
    today: Any = wallaroo.state_computation(name="today", state=Totals)(count_of_2018.function)
    with pytest.raises(WallarooParameterError, match="Decorate it with"):
        builder().to_stateful(today, Totals, "totals")


@pytest.mark.parametrize("step", [count_of_2018, twice_of_2018])
def test_a_state_computation_without_a_state_is_refused_today(step: Any) -> None:
    pipeline = wallaroo.source("w", source(Decoder()))
    words: Any = pipeline.key_by(wallaroo.key_extractor(lambda word: word)).to(step)
    with pytest.raises(WallarooParameterError, match=r"needs the state's class: @state_computat"):
        wallaroo.build_application("App", words.to_sink(sink()))


lambda_encoder = wallaroo.encoder(lambda word: (word,))


class ValueDecoder:
    def decode(self, value: bytes) -> str:
        return value.decode()


class RecordEncoder:
    def encode(self, output: Any) -> tuple[str, str]:
        return f"{output}", "key"


def test_kafka_is_configured_as_in_2017() -> None:
    options = ["--kafka_source_topic", "in", "--kafka_source_brokers", "h,i:1"]
    options += ["--kafka_sink_topic", "out", "--kafka_sink_brokers", "h"]
    _, in_topic, in_brokers, in_level = wallaroo.kafka_parse_source_options(options)
    _, *out = wallaroo.kafka_parse_sink_options(options)
    source_config: Any = wallaroo.KafkaSourceConfig
    sink_config: Any = wallaroo.KafkaSinkConfig
    application = (
        wallaroo.ApplicationBuilder("App")
        .new_pipeline("words", source_config(in_topic, in_brokers, in_level, ValueDecoder()))
        .to(Upper)
        .to_sink(sink_config(*out, RecordEncoder()))
        .build()
    )
    (made,) = application.plan.sources
    assert made.config.label == "kafka in"
    assert made.config.brokers == "h:9092,i:1"
    (sink_made,) = application.plan.sinks
    assert (sink_made.config.label, sink_made.config.delivery) == ("kafka out", "exactly-once")
    (record,) = run_local(application, {"words": [b"a"]}).outputs
    assert unpack(memoryview(record))[:2] == (b"A", b"key")


@pytest.mark.parametrize(
    ("sink_config", "output"),
    [
        (RedisSinkConfig("redis://h", stream="out"), [(b"value", b"A")]),
        (RollingSinkConfig("out", lambda_encoder, columns={"word": "string"}), ("A",)),
    ],
    ids=["redis", "parquet"],
)
def test_outputs_of_sinks_that_pack_are_packed_once(sink_config: Any, output: Any) -> None:
    application = (
        wallaroo.ApplicationBuilder("App")
        .new_pipeline("words", wallaroo.TCPSourceConfig("127.0.0.1", "7010", Decoder()))  # type: ignore[arg-type,call-arg]
        .to(Upper)
        .to_sink(sink_config)
        .build()
    )
    (packed,) = run_local(application, {"words": [b"a"]}).outputs
    assert pickle.loads(packed) == output


def test_the_classic_word_count_counts_the_bill_of_rights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])
    path = EXAMPLES / "classic_word_count" / "classic_word_count.py"
    options = ["--in", "127.0.0.1:7010", "--out", "127.0.0.1:7002"]
    application = load_application(str(path), options)
    wanted = json.loads((EXAMPLES / "word_count/bill_of_rights_word_counts.json").read_text())
    lines = (EXAMPLES / "word_count/bill_of_rights.txt").read_bytes().split(b"\n")
    run = run_local(application, {"Split and Count": [line for line in lines if line]}, batches=3)
    last: dict[str, int] = {}
    for line in run.outputs:
        word, _, count = line.decode().rpartition(" => ")
        assert int(count) == last.get(word, 0) + 1
        last[word] = int(count)
    assert last == wanted
