"""Searches for settings of a run: plain search or population-based training, scored on public validation records, with its price."""

from tacit.tuning.price import repeat_and_select
from tacit.tuning.search import Search, SearchOutcome, TrialOutcome, tune
from tacit.tuning.space import Parameter, parse_parameter

__all__ = ["Parameter", "Search", "SearchOutcome", "TrialOutcome", "parse_parameter", "repeat_and_select", "tune"]
