"""The only door to the data.

`PrivateOracle.gradient(theta)` draws a Poisson lot, clips per sample, sums, adds Gaussian noise, divides by the
*expected* lot size, writes one event per agent to the ledger, and only then returns the result. Nothing else that
depends on the records ever leaves this module, unless the experimenter of a simulation asks for `Diagnostics`.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, NoReturn, Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tacit.data import AgentData
from tacit.errors import PrivacyError
from tacit.models.functional import FlatModel
from tacit.privacy.accounts import Account
from tacit.privacy.banded_noise import BandedNoise
from tacit.privacy.discrete_noise import DiscreteNoise
from tacit.privacy.gradients.arithmetic import own_arithmetic
from tacit.privacy.gradients.clipping import Clipped, Engine, Lot, PerSample, Sample
from tacit.privacy.gradients.queries import Queries
from tacit.privacy.lots import LotDrawer, LotPiece, Rows
from tacit.privacy.masks import SharedMasks
from tacit.privacy.noise import End, Noise, make_noise
from tacit.privacy.oracle_checks import answer_one_at_a_time, check_accounts, check_held, check_masks, refuse_votes
from tacit.privacy.plans import Plan
from tacit.privacy.randomness import Source
from tacit.privacy.votes import Ballot

PIECE_RECORDS = 512
QUERY_RECORDS = 2**16
_SUM_BYTES = 24 * 2**20


class Oracle(Protocol):
    """All that an algorithm can learn about the data. `queries` counts the queries of each agent."""

    @property
    def queries(self) -> int:
        """The number of queries answered."""

    def gradient(self, theta: Float[Tensor, "agents params"]) -> Float[Tensor, "agents params"]:
        """Return every agent's noisy gradient at its θ: one query each."""

    def query(
        self, per_sample: PerSample, *public: Float[Tensor, "agents ..."], width: int | None = None
    ) -> Float[Tensor, "agents width"]:
        """Return every agent's noisy mean of any per-sample vector: one query each."""

    def vote(self, theta: Float[Tensor, "agents params"], ballot: Ballot) -> Float[Tensor, "agents records"]:
        """Return every agent's labels of public records, by noisy votes of teachers: one query each."""


class Diagnostics(NamedTuple):
    """What one query saw of the private data. A run that shows this is not a release."""

    lot_sizes: tuple[int, ...]
    clipped_share: tuple[float, ...]
    loss: tuple[float, ...]

    def of_trial(self, trial: int, trials: int) -> "Diagnostics":
        """Return one trial's part, out of several trials side by side."""
        agents = len(self.lot_sizes) // trials
        part = slice(trial * agents, (trial + 1) * agents)
        return Diagnostics(self.lot_sizes[part], self.clipped_share[part], self.loss[part])


class PrivateOracle:
    """Answers with noisy sums of clipped per-sample vectors, and charges the ledger before an answer is returned.

    Data, plan, sources, masks and accounts are those of the agents hosted here. `shaped_for` are the lot sizes from which the batches of
    `query` are shaped; by default the plan's `full_lots`, for which an engine must be shaped as well. `group_key` divides records into
    groups where noise has bands.
    """

    def __init__(
        self,
        *,
        model: FlatModel,
        engine: Engine,
        data: AgentData,
        plan: Plan,
        sources: Sequence[Source],
        accounts: Sequence[Account],
        shared: SharedMasks | None = None,
        example: Lot | None = None,
        device: torch.device | None = None,
        shaped_for: Sequence[float] | None = None,
        diagnostics: list[Diagnostics] | None = None,
        group_key: bytes = b"",
    ) -> None:
        if plan.privacy is None:
            raise PrivacyError("a private oracle needs a plan with noise; use PlainOracle for none")
        check_accounts(accounts, data, plan)
        self._model, self._engine, self._plan = model, engine, plan
        self._accounts, self._diagnostics = tuple(accounts), diagnostics  # a list could be emptied after the check
        self._device = device or torch.device("cpu")
        self._clips = torch.tensor(plan.clips, dtype=torch.float64, device=self._device)
        self._shared = SharedMasks((), (), [()] * plan.agents) if shared is None else shared
        check_masks(self._shared, plan)
        self._left_out: frozenset[int] = frozenset()
        self._noise = self._make_noise(self._shared.ends)
        self._drawer = LotDrawer(data, plan, sources, self._device, group_key)
        check_held(self._drawer.held, plan)
        shaped_for = plan.full_lots if shaped_for is None else shaped_for
        self._queries = Queries(model, shaped_for, example, plan.rounding)
        self.queries = 0

    def gradient(self, theta: Float[Tensor, "agents params"]) -> Float[Tensor, "agents params"]:
        """Return (Σ clip_C(∇ℓ(θ)) + σC ξ)/L for every agent."""
        if self._plan.rounding is not None:  # every record's vector is needed by itself, which an engine need not have
            return self.query(gradient_of, theta)

        def compute(piece: LotPiece, clip: Tensor) -> Clipped:
            return self._engine.clipped_sums(theta[piece.first : piece.last], piece.lot, clip)

        return self._release(compute, theta, theta.shape[1], self._engine.most_records)

    def query(
        self, per_sample: PerSample, *public: Float[Tensor, "agents ..."], width: int | None = None
    ) -> Float[Tensor, "agents width"]:
        """Return (Σ clip_C(v) + σC ξ)/L for `v = per_sample(record, *public)`, a vector of `width` numbers.

        `public` holds stacked tensors; `per_sample` sees its own agent's rows. By default `width` is that of the first one.
        """
        width = public[0].shape[1] if width is None else width
        if self._plan.rounding is not None:
            public = (*public, torch.full((len(public[0]), 1), self.queries, device=self._device))
        runner = self._queries.runner(per_sample, public, width)

        def compute(piece: LotPiece, clip: Tensor) -> Clipped:
            rows = tuple(tensor[piece.first : piece.last] for tensor in public)
            return runner.clipped(rows, piece.lot, clip, width)

        return self._release(compute, public[0], width, QUERY_RECORDS)

    def vote(self, theta: Float[Tensor, "agents params"], ballot: Ballot) -> NoReturn:
        """Refuse: the noise is that of sums."""
        refuse_votes()

    def _release(
        self, compute: Callable[[LotPiece, Tensor], Clipped], theta: Float[Tensor, "agents ..."], width: int, most: int
    ) -> Float[Tensor, "agents width"]:
        if theta.shape[0] != self._plan.agents:
            raise PrivacyError(f"{theta.shape[0]} rows were given for {self._plan.agents} agents")
        with answer_one_at_a_time(self._accounts):
            return self._answer(compute, theta, width, most)

    def _answer(
        self, compute: Callable[[LotPiece, Tensor], Clipped], theta: Float[Tensor, "agents ..."], width: int, most: int
    ) -> Float[Tensor, "agents width"]:
        for account in self._accounts:
            account.check()
        answer = self._attempt(compute, theta, width, most)
        self.queries += 1  # failures count too: how often a rule asks must not depend on the answers
        # Charged after computing and before returning: a process that dies before this line has released nothing. A failure
        # is charged too, and so is Ctrl-C: code could raise it when it sees a certain record.
        try:
            self._spend()
        except BaseException:
            del answer  # it was not charged, and the traceback must not lead to it
            raise
        if isinstance(answer, Exception | KeyboardInterrupt):
            raise answer
        return answer

    def _attempt(
        self, compute: Callable[[LotPiece, Tensor], Clipped], theta: Float[Tensor, "agents ..."], width: int, most: int
    ) -> Float[Tensor, "agents width"] | Exception | KeyboardInterrupt:
        """Return the answer, or an error that reveals nothing about the records, unless diagnostics are on.

        The error is a new one, made after the original is gone, so that no reference leads from it to the records.
        """
        try:
            with own_arithmetic(self._model.dtype, torch.get_num_threads()):
                return self._compute(compute, theta, width, most)
        except KeyboardInterrupt:
            return KeyboardInterrupt()  # a new one, with no reference to the records
        except BaseException as error:  # code that exits the program when it sees a record would reveal it, uncharged
            if self._diagnostics is not None and isinstance(error, Exception):
                return error
        return PrivacyError(
            "the computation failed on a private lot; the query is spent. The cause is withheld, since it could reveal "
            "private records. Try the model on public records of the same kind"
        )

    def _compute(
        self, compute: Callable[[LotPiece, Tensor], Clipped], theta: Float[Tensor, "agents ..."], width: int, most: int
    ) -> Float[Tensor, "agents width"]:
        plan = self._plan
        query = self._charged() if plan.bands else 0
        streams, lots = self._drawer.draw(query)
        self._noise.begin(query)
        masks = [source.next() for source in self._shared.sources]
        released = torch.empty(plan.agents, width, dtype=self._model.dtype, device=self._device)
        norms: list[Tensor] = []
        # A few agents at a time, so that their sums stay in the processor's cache.
        some = max(1, _SUM_BYTES // (8 * width))
        for first in range(0, plan.agents, some):
            agents = slice(first, min(first + some, plan.agents))
            with torch.no_grad():
                sums, lengths = self._sums(compute, lots[agents], first, width, most)
            norms += lengths
            self._noise.release(sums, streams[agents], masks, agents, released[agents])
        if self._diagnostics is not None:
            with torch.no_grad():
                self._diagnostics.append(self._diagnose(theta, lots, norms))
        return released

    def _sums(
        self, compute: Callable[[LotPiece, Tensor], Clipped], lots: list[Rows], first: int, width: int, most: int
    ) -> tuple[Float[Tensor, "agents width"], list[Tensor]]:
        """Return the clipped sums of the agents that start at `first`, and their records' norms."""
        sums: Tensor | None = None
        norms = []
        for piece in self._drawer.pieces(lots, most, first):
            part = compute(piece, self._clips[piece.first : piece.last])
            norms.append(part.norms)
            if sums is None and len(part.sums) == len(lots):
                sums = part.sums
                continue
            if sums is None:
                sums = torch.zeros(len(lots), width, dtype=torch.float64, device=self._device)
            sums[piece.first - first : piece.last - first] += part.sums
        if sums is None:  # all lots are empty
            sums = torch.zeros(len(lots), width, dtype=torch.float64, device=self._device)
        return sums, norms

    def leave_out(self, agents: Collection[int]) -> None:
        """Share no masks with these agents from now on. The plan must have counted on losing that many."""
        if frozenset(agents) == self._left_out:
            return
        planned = 0 if self._plan.masks is None else self._plan.masks.lost
        if len(agents) > planned:
            raise PrivacyError(
                f"{len(agents)} agents are to be left out of the masks, but the noise was planned for {planned}"
            )
        self._left_out = frozenset(agents)
        self._noise = self._make_noise(self._shared.without(agents))

    def _make_noise(self, ends: Sequence[Sequence[End]]) -> Noise:
        if self._plan.rounding is not None:
            return DiscreteNoise(self._plan.mechanisms)
        fresh = make_noise(self._plan.mechanisms, ends, self._device)
        return BandedNoise(fresh, self._plan.bands) if self._plan.bands else fresh

    def skip(self, queries: int) -> None:
        """Continue after queries that an earlier process answered."""
        if queries != self.queries:
            self._noise.forget()
        self._drawer.skip(queries)
        for source in self._shared.sources:
            source.position = queries
        self.queries = queries

    def forget(self) -> None:
        """Erase what noise remembers of earlier queries."""
        self._noise.forget()

    def _charged(self) -> int:
        """Return how many queries were charged before, in this process and in earlier ones: it says whose turn it is.

        A query that was charged and lost has had its turn, and one that was not charged has released nothing.
        """
        counts = {account.spent for account in self._accounts}
        if len(counts) != 1:
            raise PrivacyError("the accounts of one oracle have different numbers of queries")
        return counts.pop()

    def _spend(self) -> None:
        for account in self._accounts:
            account.check()  # all of them, before any is charged
        for account in self._accounts:
            account.spend()

    def _diagnose(self, theta: Tensor, lots: list[Rows], norms: list[Tensor]) -> Diagnostics:
        sizes = [len(lot) for lot in lots]
        each = torch.cat(norms).split(sizes) if norms else [torch.zeros(0)] * len(lots)
        shares = [
            float((values > clip).double().mean()) if len(values) else float("nan")
            for values, clip in zip(each, self._plan.clips, strict=True)
        ]
        totals = np.zeros(len(lots))
        if theta.ndim == 2 and theta.shape[1] == self._model.size:
            for piece in self._drawer.pieces(lots, PIECE_RECORDS):
                bounds = piece.lot.offsets.tolist()
                for row, agent in enumerate(range(piece.first, piece.last)):
                    part = slice(bounds[row], bounds[row + 1])
                    inputs, targets = piece.lot.take(torch.arange(part.start, part.stop, device=self._device))
                    losses = self._model.losses(theta[agent], inputs, targets)
                    totals[agent] += float(losses.sum())
        else:
            totals[:] = np.nan
        means = [total / size if size else float("nan") for total, size in zip(totals, sizes, strict=True)]
        return Diagnostics(tuple(sizes), tuple(shares), tuple(means))


def gradient_of(record: Sample, theta: Float[Tensor, " params"]) -> Float[Tensor, " params"]:
    """Return a record's gradient: what `PrivateOracle.gradient` asks for where every record is rounded by itself."""
    return record.gradient(theta)
