"""A budget that a run brings along for the ledger of all runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.errors import PrivacyError
from tacit.privacy import Budget, DurableLedger
from tacit.privacy.ledger import EVERYONE
from tacit.privacy.store import has_a_budget


class BudgetedLedger(DurableLedger):
    """A ledger that gets its budget together with a run's account, in one transaction.

    So a run that cannot begin, or that this budget refuses, leaves no budget behind.
    """

    def __init__(self, path: Path, budget: Budget) -> None:
        super().__init__(path)
        self._wanted, self._is_new = budget, False
        if self.budget not in (None, budget):
            stored = self.budget
            assert stored is not None
            self.close()
            raise PrivacyError(has_a_budget(path, stored))

    @contextmanager
    def _opening(self) -> Iterator[None]:
        with super()._opening():
            self._is_new = self.budget is None
            self._store_budget(EVERYONE, self._wanted)
            self.budget = self._wanted
            yield

    def _way_out(self, subject: str) -> str:
        if subject or not self._is_new:
            return super()._way_out(subject)
        return f". No budget was stored: `tacit ledger --runs {self._where}` shows what earlier runs spent; a higher budget would leave more room"
