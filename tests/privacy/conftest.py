"""What tests of privacy share."""

import pytest


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "ledger.sqlite"
