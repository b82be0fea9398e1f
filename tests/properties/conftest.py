"""Fixtures of properties."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from wallaroo.testing.local_runner.runner import LocalRunner


@pytest.fixture(scope="module", params=[False, True], ids=["in turn", "ahead"])
def ahead(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether level 0 runs before the commit before it, as resident tasks may."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalRunner, "runs_ahead", request.param)
        yield
