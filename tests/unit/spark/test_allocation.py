"""Workers between drivers on a standalone cluster: whose master is asked for what."""

from __future__ import annotations

import logging
from unittest import mock

import pytest
from py4j.protocol import Py4JError

from wallaroo.spark.cluster.allocation import allocation_of, end_workers, yield_workers

FORMER = "app-20261126-0001"


def context_of(master: str) -> mock.MagicMock:
    return mock.MagicMock(master=master, applicationId="app-20261126-0002")


def asked(context: mock.MagicMock) -> mock.MagicMock:
    reference: mock.MagicMock = context._jsc.sc().schedulerBackend().rpcEnv().setupEndpointRef
    return reference


def test_each_of_several_masters_is_asked_to_end_the_former_application(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One of them leads; a master that cannot be asked is named, with what may come of it."""
    context = context_of("spark://a:7077,b:7077")
    answering = mock.MagicMock()
    asked(context).side_effect = [Py4JError("connection refused"), answering]

    with caplog.at_level(logging.INFO, "wallaroo.run"):
        end_workers(context, f"spark://a:7077,b:7077 {FORMER}")

    assert answering.send.call_count == 1
    assert f"Spark's master a:7077 could not be asked to end application {FORMER}" in caplog.text
    assert "may keep its workers: " in caplog.text


@pytest.mark.parametrize("former", ["", f"spark://other:7077 {FORMER}"])
def test_an_application_of_no_or_another_master_is_left_alone(former: str) -> None:
    context = context_of("spark://a:7077")
    end_workers(context, former)
    assert not asked(context).called


@pytest.mark.parametrize("master", ["yarn", "k8s://https://api:6443", "local[2]"])
def test_other_cluster_managers_are_asked_for_nothing(master: str) -> None:
    """They end what a lost driver held, and give workers, by rules of their own."""
    context = context_of(master)
    yield_workers(context)
    assert allocation_of(context) == ""
    assert not context._jsc.sc().requestTotalExecutors.called
