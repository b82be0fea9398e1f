"""What applications read from their arguments, and time spans."""

from __future__ import annotations

import pytest

import wallaroo


def test_input_addresses_are_tuples_of_strings() -> None:
    args = ["--first", "-i", "Split and Count@127.0.0.1:7010,B@h:7011:65536,h:7012", "--in-between"]
    assert wallaroo.tcp_parse_input_addrs(args) == [
        ("Split and Count", "127.0.0.1", "7010"),
        ("B", "h", "7011", "65536"),
        ("h", "7012"),
    ]


def test_output_addresses_are_pairs_of_strings() -> None:
    assert wallaroo.tcp_parse_output_addrs(["--out", "a:1,b:2", "--in", "x@h:1"]) == [
        ("a", "1"),
        ("b", "2"),
    ]


def test_an_ipv6_host_is_in_brackets() -> None:
    assert wallaroo.tcp_parse_input_addrs(["--in", "A@[::1]:7010"]) == [("A", "::1", "7010")]


def test_other_options_are_left_alone_even_when_they_look_alike() -> None:
    with pytest.raises(wallaroo.WallarooParameterError):
        wallaroo.tcp_parse_input_addrs(["--inp", "A@h:1"])


@pytest.mark.parametrize("args", [["--unrelated"], ["--in"], []])
def test_a_missing_option_is_reported_with_the_line_that_asks_for_it(args: list[str]) -> None:
    with pytest.raises(wallaroo.WallarooParameterError) as raised:
        wallaroo.tcp_parse_input_addrs(args)
    (problem,) = raised.value.problems
    assert problem.step == "--in"
    assert problem.place.startswith(f"{__file__}:")
    assert problem.fix == "Give --in NAME@HOST:PORT[,NAME@HOST:PORT...]."


@pytest.mark.parametrize("text", ["localhost", "A@localhost", ":7010", "h:"])
def test_what_is_no_address_is_quoted_with_its_fix(text: str) -> None:
    with pytest.raises(
        wallaroo.WallarooParameterError, match=r"is not an address\. Write it as NAME@HOST:PORT"
    ):
        wallaroo.tcp_parse_input_addrs(["--in", text])


def test_time_spans_are_whole_nanoseconds() -> None:
    spans = [
        wallaroo.nanoseconds(1),
        wallaroo.microseconds(1),
        wallaroo.milliseconds(1),
        wallaroo.seconds(1),
    ]
    assert spans == [1, 10**3, 10**6, 10**9]
    assert (wallaroo.minutes(1), wallaroo.hours(1), wallaroo.seconds(0.5)) == (
        60 * 10**9,
        3600 * 10**9,
        5 * 10**8,
    )


def test_the_complete_command_line_names_this_process_the_initializer() -> None:
    assert "--cluster-initializer" in wallaroo._ARGS
