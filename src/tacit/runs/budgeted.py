"""A budget that a run brings along for the ledger of all runs."""

from pathlib import Path
from typing import Any

from tacit.errors import PrivacyError
from tacit.privacy import Account, Budget, DurableLedger
from tacit.privacy.store import has_a_budget


class BudgetedLedger(DurableLedger):
    """A ledger that gets its budget at the last moment before a run opens its account.

    A run that cannot begin for some other reason so leaves no budget behind.
    """

    def __init__(self, path: Path, budget: Budget) -> None:
        super().__init__(path)
        self._wanted = budget
        if self.budget not in (None, budget):
            stored = self.budget
            assert stored is not None
            self.close()
            raise PrivacyError(has_a_budget(path, stored))

    def open_together(self, **accounts: Any) -> list[Account]:
        """Store the budget, then allow the runs their queries or refuse them."""
        DurableLedger(self.path, budget=self._wanted).close()
        return super().open_together(**accounts)
