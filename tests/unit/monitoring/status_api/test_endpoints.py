"""Health, metrics, history, the stream and the state explorer over real connections."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from prometheus_client.parser import text_string_to_metric_families

import wallaroo
from tests.unit.checkpoints.inspection.conftest import Book
from tests.unit.monitoring.dashboard.fakes import BusyRun
from tests.unit.monitoring.status_api.conftest import Start
from tests.unit.monitoring.status_api.fakes import (
    COUNTER,
    RUNNING,
    authorization,
    get,
)
from wallaroo.monitoring.metrics.status import RunState
from wallaroo.monitoring.status_api.http import STREAMS_MAX
from wallaroo.monitoring.status_api.live import graph_of
from wallaroo.monitoring.status_api.prometheus import exposition
from wallaroo.monitoring.status_api.routes import SILENCE_S_MAX


def raw(address: tuple[str, int], path: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection(*address, timeout=180)
    try:
        connection.request("GET", path, headers={**authorization(address), **headers})
        reply = connection.getresponse()
        return reply.status, reply.read(), dict(reply.headers)
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("state", "health", "readiness"),
    [("starting", 200, 503), ("running", 200, 200), ("stopping", 200, 503), ("failed", 503, 503)],
)
def test_health_is_about_the_process_and_readiness_about_input(
    start: Start, state: str, health: int, readiness: int
) -> None:
    server = start(replace(RUNNING, state=RunState(state)))
    server._handle.meter.observe([], [], time.time())
    assert get(server.address, "/healthz")[0] == health
    assert get(server.address, "/readyz")[0] == readiness


def test_a_run_that_no_longer_looks_at_its_sources_is_not_healthy(start: Start) -> None:
    server = start(replace(RUNNING, state=RunState.RUNNING))
    server._handle.meter.observe([], [], time.time() - SILENCE_S_MAX - 1)
    code, body, _ = get(server.address, "/healthz")
    assert (code, "has not looked at its sources" in body["error"]) == (503, True)


def test_metrics_pass_promtools_checks(tmp_path: Path, promtool: str) -> None:
    """``promtool check metrics`` reads the text format and lints names, units and help."""
    run = BusyRun(tmp_path, seconds=120)
    text = exposition(run.plan, run.status(), run.meter.details())
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, timeout=180
    )
    # the driver's own process metrics come from prometheus-client
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def test_metrics_say_what_the_status_says(tmp_path: Path) -> None:
    run = BusyRun(tmp_path, seconds=120)
    status = run.status()
    text = exposition(run.plan, status, run.meter.details()).decode()
    values = {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert values["wallaroo_events_processed_total", ("Lines",)] == status.events_done
    assert values["wallaroo_batches_total", ()] == status.batches
    assert values["wallaroo_run_state", ("running",)] == 1
    assert values["wallaroo_step_seconds_total", ("stage 1 (count word)", "count word")] > 0
    assert values["wallaroo_failed_events_total", ("skip", "split into words")] == 6
    assert values["wallaroo_latency_seconds_count", ("Lines",)] == status.latency[0].count
    assert "liberty" not in text  # keys of events are never labels


def test_metrics_are_served_as_prometheus_expects(start: Start) -> None:
    code, body, headers = raw(start().address, "/metrics")
    assert (code, headers["Content-Type"].split(";")[0]) == (200, "text/plain")
    assert b"wallaroo_build_info" in body
    assert b"process_cpu_seconds_total" in body


def test_history_is_served_by_span(start: Start) -> None:
    server = start()
    meter = server._handle.meter
    for second in range(1, 40):
        meter.observe([], [], RUNNING.started_at + second)
    code, body, _ = get(server.address, "/history")
    assert (code, body["span"], len(body["rows"])) == (200, "10m", 39)
    assert len(body["columns"]) == len(body["rows"][0])
    assert len(get(server.address, "/history?span=4h")[1]["rows"]) == 2
    assert get(server.address, "/history?span=1y")[0] == 400


def test_the_stream_sends_a_message_a_second_though_nothing_flows(start: Start) -> None:
    address = start().address
    connection = http.client.HTTPConnection(*address, timeout=180)
    connection.request("GET", "/stream", headers=authorization(address))
    reply = connection.getresponse()
    assert reply.headers["Content-Type"] == "text/event-stream"
    messages = []
    while len(messages) < 2:
        line = reply.readline()
        if line.startswith(b"data: "):
            messages.append(json.loads(line[6:]))
    assert messages[1]["at"] > messages[0]["at"]
    assert messages[0]["status"]["application"] == "Word Count"
    connection.close()


def test_streams_leave_room_for_queries(start: Start, eventually: Any) -> None:
    address = start().address
    streams = []
    for _ in range(STREAMS_MAX):
        connection = http.client.HTTPConnection(*address, timeout=180)
        connection.request("GET", "/stream", headers=authorization(address))
        streams.append((connection, connection.getresponse()))
    assert get(address, "/stream")[0] == 503
    assert get(address, "/status")[0] == 200
    for connection, reply in streams:
        reply.close()
        connection.close()
    eventually(lambda: is_streaming(address), "a stream is free again")


def is_streaming(address: tuple[str, int]) -> bool:
    connection = http.client.HTTPConnection(*address, timeout=180)
    try:
        connection.request("GET", "/stream", headers=authorization(address))
        return connection.getresponse().status == 200
    finally:
        connection.close()


def test_closing_the_server_ends_the_streams(start: Start) -> None:
    server = start()
    connection = http.client.HTTPConnection(*server.address, timeout=180)
    connection.request("GET", "/stream", headers=authorization(server.address))
    reply = connection.getresponse()
    reply.readline()
    server.close()
    assert reply.read().endswith(b"\n\n")  # the last message, then the end
    connection.close()


def test_a_browser_gets_the_dashboard_and_everything_else_the_list(start: Start) -> None:
    address = start().address
    code, body, headers = raw(address, "/", Accept="text/html,*/*")
    assert (code, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b"<title>Wallaroo</title>" in body
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert json.loads(raw(address, "/", Accept="*/*")[1])["application"] == "Word Count"


@pytest.mark.parametrize("name", ["../server.py", "%2e%2e/__init__.py", "nothing.js", "", "."])
def test_only_the_dashboards_own_files_are_served(start: Start, name: str) -> None:
    assert raw(start().address, f"/ui/{name}")[0] == 404


def test_an_address_that_cannot_be_read_is_a_bad_request(start: Start) -> None:
    with socket.create_connection(start().address, 10) as connection:
        connection.sendall(b"GET http://[::1/status HTTP/1.0\r\n\r\n")
        assert connection.makefile("rb").readline().split()[1] == b"400"


def test_keys_are_searched(book: Book, start: Start) -> None:
    book.write({(COUNTER, word): {"n": 1} for word in ("the", "there", "of")})
    address = start().address
    found = get(address, "/state-search?text=THE")[1]
    assert sorted(one["key"] for one in found) == ["the", "there"]
    assert {one["step"] for one in found} == {COUNTER}
    _, found, headers = get(address, "/state-search?text=the&limit=1")
    assert (len(found), headers["X-Wallaroo-Truncated"]) == (1, "true")
    assert get(address, "/state-search?step=nothing")[1] == []


def test_a_tuple_is_searched_and_shown_as_it_is_written(book: Book, start: Start) -> None:
    book.write({(COUNTER, ("the", 7)): {"n": 3}})
    address = start().address

    [found] = get(address, "/state-search?text=the")[1]
    query = urlencode({"step": COUNTER, "key": found["key"]})
    [version] = get(address, f"/state-object?{query}")[1]["versions"]

    assert found["key"] == "('the', 7)"
    assert version["value"] == {"n": 3}


def test_an_object_is_shown_after_each_commit_that_changed_it(book: Book, start: Start) -> None:
    book.write({(COUNTER, "the"): {"n": 1}, (COUNTER, 7): {"n": 5}})
    book.write({(COUNTER, "of"): {"n": 1}})
    book.write({(COUNTER, "the"): {"n": 2}})
    address = start().address
    body = get(address, "/state-object?step=count%20word&key=the")[1]
    assert [(one["batch"], one["value"]) for one in body["versions"]] == [
        (2, {"n": 2}),
        (0, {"n": 1}),
    ]
    assert body["commits"] == [0, 1, 2]
    assert get(address, "/state-object?key=7")[1]["versions"][0]["value"] == {"n": 5}
    assert get(address, "/state-object?key=nothing")[1]["versions"] == []
    assert get(address, "/state-object")[0] == 400


def test_before_the_first_commit_there_is_no_object(start: Start) -> None:
    assert get(start().address, "/state-object?key=the")[1]["versions"] == []


def is_the(word: str) -> bool:
    return word == "the"


def test_the_graph_of_a_stream_that_parts_has_a_node_with_two_ways_on() -> None:
    lines = wallaroo.source("in", wallaroo.FileSourceConfig("in", "in.txt"))
    yes, no = lines.branch(is_the)
    sink = wallaroo.StdoutSinkConfig()
    parted = wallaroo.build_application("p", yes.map(str).to_sink(sink), no.to_sink(sink))

    graph = graph_of(parted.plan)

    assert [(node["id"], node["name"], node["place"]) for node in graph["nodes"]] == [
        ("source:0", "in", 0),
        ("step:0:1", "is_the", 1),
        ("step:1:1", "str", 1),
        ("sink:0", "stdout", 0),
        ("sink:1", "stdout-2", 0),
    ]
    edges = {(edge["from"], edge["to"]): edge for edge in graph["edges"]}
    assert [*edges] == [
        ("source:0", "step:0:1"),
        ("step:0:1", "step:1:1"),
        ("step:0:1", "sink:1"),
        ("step:1:1", "sink:0"),
    ]
    assert edges["step:0:1", "step:1:1"]["key"] == "true"
    assert edges["step:0:1", "sink:1"]["key"] == "false"


def test_every_edge_of_the_graph_connects_nodes(start: Start) -> None:
    graph = graph_of(start()._handle.plan)
    names = {node["id"] for node in graph["nodes"]}
    assert {end for edge in graph["edges"] for end in (edge["from"], edge["to"])} == names
    assert [node["kind"] for node in graph["nodes"]] == ["source", "step", "state", "sink"]
