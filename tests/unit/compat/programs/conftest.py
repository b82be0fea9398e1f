"""Programs of Wallaroo's connector API talk to real ingress processes."""

from tests.unit.ingress.conftest import running as running  # a fixture
