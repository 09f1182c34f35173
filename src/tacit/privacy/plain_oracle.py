"""The oracle without clipping and noise: the non-private baseline."""

from collections.abc import Callable, Sequence
from typing import NoReturn

import torch
from jaxtyping import Float
from torch import Tensor

from tacit.data import AgentData
from tacit.models.functional import FlatModel
from tacit.privacy.accounts import Account
from tacit.privacy.gradients.clipping import Engine, Lot, PerSample
from tacit.privacy.gradients.queries import Queries
from tacit.privacy.lots import LotDrawer, LotPiece
from tacit.privacy.oracle import PIECE_RECORDS, QUERY_RECORDS
from tacit.privacy.oracle_checks import check_accounts, refuse_votes
from tacit.privacy.plans import Plan
from tacit.privacy.randomness import Source
from tacit.privacy.votes import Ballot


class PlainOracle:
    """The same lots and divisor without clipping and noise: no privacy. It records in the ledger that it read the data."""

    def __init__(
        self,
        *,
        model: FlatModel,
        engine: Engine,
        data: AgentData,
        plan: Plan,
        sources: Sequence[Source],
        accounts: Sequence[Account] = (),
        example: Lot | None = None,
        device: torch.device | None = None,
        shaped_for: Sequence[float] | None = None,
    ) -> None:
        if accounts:
            check_accounts(accounts, data, plan)
        self._model, self._engine, self._accounts = model, engine, tuple(accounts)
        self._queries = Queries(model, plan.lot_sizes if shaped_for is None else shaped_for, example)
        self._device = device or torch.device("cpu")
        self._drawer = LotDrawer(data, plan, sources, self._device)
        self._lot_sizes = torch.tensor(plan.lot_sizes, dtype=torch.float64, device=self._device)
        self.queries = 0

    def gradient(self, theta: Float[Tensor, "agents params"]) -> Float[Tensor, "agents params"]:
        """Return Σ ∇ℓ(θ)/L over every agent's lot."""
        return self._mean(
            lambda piece: self._engine.plain_sums(theta[piece.first : piece.last], piece.lot),
            theta,
            theta.shape[1],
            max(self._engine.most_records, PIECE_RECORDS),
        )

    def query(
        self, per_sample: PerSample, *public: Float[Tensor, "agents ..."], width: int | None = None
    ) -> Float[Tensor, "agents width"]:
        """Return Σ v/L for `v = per_sample(record, *public)`."""
        width = public[0].shape[1] if width is None else width
        runner = self._queries.runner(per_sample, public, width)

        def compute(piece: LotPiece) -> Tensor:
            rows = tuple(tensor[piece.first : piece.last] for tensor in public)
            return runner.plain(rows, piece.lot, width)

        return self._mean(compute, public[0], width, QUERY_RECORDS)

    def vote(self, theta: Float[Tensor, "agents params"], ballot: Ballot) -> NoReturn:
        """Refuse: it was not planned for."""
        refuse_votes()

    def skip(self, queries: int) -> None:
        """Continue after queries that an earlier process answered."""
        self._drawer.skip(queries)
        self.queries = queries

    def _mean(self, compute: Callable[[LotPiece], Tensor], theta: Tensor, width: int, most: int) -> Tensor:
        for account in self._accounts:
            if not account.spent:
                account.spend()  # once, before the first record is read
        self.queries += 1
        _, lots = self._drawer.draw()
        sums = torch.zeros(theta.shape[0], width, dtype=torch.float64, device=self._device)
        with torch.no_grad():
            for piece in self._drawer.pieces(lots, most):
                sums[piece.first : piece.last] += compute(piece)
        return (sums / self._lot_sizes[:, None]).to(self._model.dtype)
