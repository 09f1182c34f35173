"""What tests of runs share."""

import sys

import pytest
from own_code import ODD, STUDY

import tacit


@pytest.fixture(scope="module")
def digits():
    return tacit.data.load("digits")


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A folder with the user's files, in which everything happens."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "study.py").write_text(STUDY)
    (tmp_path / "odd.py").write_text(ODD)
    return tmp_path
