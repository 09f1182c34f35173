"""The oracle's promise: what is charged, what is drawn, what is returned."""

import traceback

import numpy as np
import pytest
import torch
from scipy import stats
from source_kinds import every_kind
from tampering import gaussians
from torch import nn

import tacit
from tacit.data import AgentData
from tacit.errors import BudgetExceeded, InvalidInput, PrivacyError
from tacit.models import FlatModel
from tacit.privacy import Ledger, Privacy, PrivateOracle, Secret, Seeded, VmapEngine
from tacit.privacy.gradients.clipping import HAIR, Lot


def make_data(sizes=(20, 30), features=4):
    generator = torch.Generator().manual_seed(0)
    parts = [
        (torch.randn(size, features, generator=generator), torch.randint(0, 3, (size,), generator=generator))
        for size in sizes
    ]
    return AgentData.from_parts(parts, name="made", classes=3)


def make_oracle(
    data,
    *,
    queries=1000,
    sources=None,
    ledger=None,
    sizes=None,
    diagnostics=None,
    engine=None,
    example=None,
    **settings,
):
    asked = {"noise_multiplier": 1.0, "delta": 1e-5, "clip": 1.0, "lot_size": 5} | settings
    plan = Privacy(**asked).plan(sizes or data.sizes, queries)
    ledger = ledger if ledger is not None else Ledger()
    account = ledger.open(
        run="run",
        owners=data.owners,
        mechanisms=plan.mechanisms,
        queries=queries,
        release=False,
    )
    torch.manual_seed(0)
    model = FlatModel(nn.Linear(data.dataset.train.inputs.shape[1], 3))
    chosen = sources or Seeded(1)
    return PrivateOracle(
        model=model,
        engine=engine or VmapEngine(model),
        data=data,
        plan=plan,
        sources=chosen.make(data.agents),
        accounts=[account],
        example=example,
        diagnostics=diagnostics,
    ), torch.randn(data.agents, model.size)


def test_a_query_is_charged_before_its_answer_is_returned():
    ledger, data = Ledger(), make_data()

    class Broken:
        most_records = 100

        def clipped_sums(self, theta, lot, clip):
            raise RuntimeError("secret: record 3 has label 4")

    oracle, theta = make_oracle(data, ledger=ledger, engine=Broken(), lot_size=20)
    with pytest.raises(PrivacyError, match="failed on a private lot; the query is spent") as caught:
        oracle.gradient(theta)
    assert [entry.spent for entry in ledger.entries()] == [1, 1]
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_an_answer_that_could_not_be_charged_is_not_in_the_traceback():
    ledger, data = Ledger(), make_data()
    oracle, theta = make_oracle(data, ledger=ledger)
    (account,) = ledger.accounts
    full = OSError("no space left on device")
    account.spend = lambda: (_ for _ in ()).throw(full)
    with pytest.raises(OSError, match="no space left") as caught:
        oracle.gradient(theta)
    held = [
        (frame.f_code.co_name, name)
        for frame, _ in traceback.walk_tb(caught.value.__traceback__)
        for name, value in frame.f_locals.items()
        if isinstance(value, torch.Tensor) and value is not theta
    ]
    assert held == []


CHEAPER = {"noise": {"sigma": 100.0}, "rate": {"rate": 0.01}, "clip": {"clip": 0.5}, "lot": {"lot": 50.0}}


@pytest.mark.parametrize("accounts", ["none", "another owner's", *CHEAPER])
def test_an_oracle_refuses_accounts_that_are_not_its_own(accounts):
    data, ledger = make_data((20,)), Ledger()
    oracle, _ = make_oracle(data)
    owner = "other" if accounts == "another owner's" else data.owners[0]
    other = {"rate": 0.25, "sigma": 1.0, "clip": 1.0, "lot": 5.0} | CHEAPER.get(accounts, {})
    mechanisms = gaussians([other["rate"]], [other["sigma"]], clip=other["clip"], lot=other["lot"])
    charged = {"mechanisms": mechanisms, "queries": 5, "release": True}
    wrong = [] if accounts == "none" else [ledger.open(run="r", owners=[owner], **charged)]
    with pytest.raises(PrivacyError, match="accounts do not belong"):
        PrivateOracle(
            model=oracle._model,
            engine=oracle._engine,
            data=data,
            plan=oracle._plan,
            sources=Seeded(0).make(1),
            accounts=wrong,
        )


def test_accounts_stay_charged_when_the_list_of_them_is_emptied():
    """Three queries were answered and none was charged."""
    privacy = Privacy(noise_multiplier=5.0, delta=1e-3, clip=1.0, lot_size=5)
    settings = {"model": lambda: nn.Linear(4, 3), "data": make_data((20,)), "rounds": 3, "lr": 0.1}
    for settings["privacy"], charged in ((privacy, 3), (tacit.NoPrivacy(lot_size=5), 1)):
        session = tacit.Session(tacit.Training(algorithm=tacit.Local(), **settings))
        (account,) = session.accounts
        session.accounts.clear()
        while not session.finished:
            session.advance()
        assert (session.real_oracle.queries, account.spent) == (3, charged)


def test_a_query_past_the_budget_raises_and_spends_nothing():
    ledger, data = Ledger(), make_data()
    sources = Seeded(1)
    oracle, theta = make_oracle(data, ledger=ledger, queries=2, sources=sources)
    oracle.gradient(theta)
    oracle.query(lambda record, theta: record.gradient(theta), theta)
    for ask in (oracle.gradient, lambda t: oracle.query(lambda record, theta: theta, t)):
        with pytest.raises(BudgetExceeded, match="all 2 queries"):
            ask(theta)
    assert oracle.queries == 2
    assert {entry.spent for entry in ledger.entries()} == {2}


def test_of_several_accounts_none_is_charged_when_one_is_empty():
    ledger, data = Ledger(), make_data((20,))
    oracle, theta = make_oracle(data, ledger=ledger, queries=1)
    other = ledger.open(run="other", owners=data.owners, mechanisms=gaussians([0.25], [1.0]), queries=5, release=False)
    oracle._accounts = [other, *oracle._accounts]
    oracle.gradient(theta)
    with pytest.raises(BudgetExceeded):
        oracle.gradient(theta)
    assert other.spent == 1


@every_kind(seed=2, rate=2e-6)
def test_an_empty_lot_is_pure_noise(kind):
    """With lots of 1e-9 expected records the answer is σC ξ/L; KS and variance, 1e-6 each."""
    data = make_data((40,), features=3000)
    oracle, theta = make_oracle(data, sources=kind, lot_size=1e-9, noise_multiplier=3.0, clip=0.5)
    noise = oracle.gradient(theta).double().flatten() * 1e-9 / 1.5
    assert stats.kstest(noise.numpy(), "norm").pvalue > 1e-6
    assert abs(float(noise.var()) - 1) * np.sqrt(len(noise) / 2) < stats.norm.isf(5e-7)


@pytest.mark.chance(2.1e-6)
def test_noise_has_every_agents_own_scale_and_is_independent():
    """Six scales to within a χ² test, 1e-7 each, and 15 correlations of rows, 1e-7 each."""
    data = make_data((40, 40, 40), features=2000)
    oracle, theta = make_oracle(
        data, lot_size=[1e-9, 2e-9, 4e-9], noise_multiplier=[1.0, 2.0, 3.0], clip=[1.0, 0.1, 10.0], sources=Secret()
    )
    rows = torch.cat([oracle.gradient(theta).double() for _ in range(2)])
    expected = torch.tensor([1.0 / 1e-9, 0.2 / 2e-9, 30.0 / 4e-9] * 2, dtype=torch.float64)
    width = rows.shape[1]
    for row, scale in zip(rows, expected, strict=True):
        statistic = float((row / scale).square().sum())
        assert 5e-8 < stats.chi2.cdf(statistic, width) < 1 - 5e-8
    correlation = np.corrcoef(rows.numpy())[np.triu_indices(6, 1)]
    assert np.abs(correlation).max() * np.sqrt(width) < stats.norm.isf(5e-8)


def test_divides_by_the_expected_lot_size_and_not_by_the_drawn_one():
    data = make_data((50,))
    seen = []
    oracle, theta = make_oracle(data, lot_size=10, noise_multiplier=1e-9, diagnostics=seen, clip=100.0)
    ratios = []
    for _ in range(20):
        answer = oracle.gradient(theta)[0]
        ratios.append((answer, seen[-1].lot_sizes[0]))
    sizes = {size for _, size in ratios}
    assert len(sizes) > 3
    # The sum over an all-alike data set is the lot's size times one gradient.
    data.dataset.train.inputs[:] = data.dataset.train.inputs[0]
    data.dataset.train.targets[:] = 1
    norms = []
    for _ in range(20):
        answer = oracle.gradient(theta)[0]
        if seen[-1].lot_sizes[0]:
            norms.append(float(answer.norm()) * 10 / seen[-1].lot_sizes[0])
    assert np.ptp(norms) < 1e-4 * norms[0]


def test_the_mechanism_does_not_change_with_the_data():
    """One record more, the same declared size: q, L and σ are the same."""
    data, more = make_data((20,)), make_data((21,))
    plans = [make_oracle(each, sizes=(20,))[0]._plan for each in (data, more)]
    assert plans[0] == plans[1]
    assert plans[0].sample_rates == (0.25,)


@pytest.mark.parametrize("piece_records", [1, 3, 7, 1000])
def test_a_lot_in_pieces_is_the_same_lot(piece_records):
    data = make_data((60, 5, 33))
    answers = []
    for most in (10**9, piece_records):
        oracle, theta = make_oracle(data, lot_size=[50, 1, 20], sources=Seeded(4))
        oracle._engine.most_records = most
        answers.append(oracle.gradient(theta))
    torch.testing.assert_close(answers[0], answers[1], rtol=0, atol=1e-6)


def test_nothing_of_a_lot_is_left_out():
    """A full lot of huge size: every record is counted once, whatever the pieces."""
    data = make_data((5000,))
    oracle, theta = make_oracle(data, lot_size=5000, noise_multiplier=1e-9)

    def one(record, theta):
        return torch.ones(1)

    assert oracle.query(one, theta, width=1).item() == pytest.approx(1 - HAIR, abs=1e-6)


def test_any_vector_can_be_asked_for_and_its_width_is_checked():
    data = make_data((30, 30))
    shown = Lot(torch.randn(4, data.dataset.train.inputs.shape[1]), torch.arange(4) % 3, torch.tensor([0, 4]))
    oracle, theta = make_oracle(data, lot_size=30, noise_multiplier=1e-9, clip=100.0, example=shown)

    def class_counts(record, theta):
        return nn.functional.one_hot(record.target, 3).to(theta.dtype)

    shares = oracle.query(class_counts, theta, width=3) * 30
    expected = torch.tensor(data.counts, dtype=torch.float32)
    torch.testing.assert_close(shares, expected, rtol=0, atol=1e-3)
    with pytest.raises(InvalidInput, match=r"returns 3 numbers, not 15; pass width="):
        oracle.query(class_counts, theta)


def test_rows_must_match_the_agents():
    ledger, data = Ledger(), make_data()
    oracle, theta = make_oracle(data, ledger=ledger)
    with pytest.raises(PrivacyError, match="5 rows were given for 2 agents"):
        oracle.gradient(theta[:1].repeat(5, 1))
    assert {entry.spent for entry in ledger.entries()} == {0}


def test_the_same_seeded_source_gives_the_same_answers():
    answers = []
    for _ in range(2):
        oracle, theta = make_oracle(make_data(), sources=Seeded(9))
        torch.rand(3)  # torch's global generator must not matter
        answers.append(torch.stack([oracle.gradient(theta * 0 + 1) for _ in range(3)]))
    assert torch.equal(*answers)
    assert not torch.equal(answers[0][0], answers[0][1])


def test_a_few_large_lots_among_many_small_ones_do_not_blow_up_memory():
    """A piece is bounded by its padded size, not by the records in it."""
    oracle, _ = make_oracle(make_data((700, *[4] * 30)), lot_size=[700, *[2] * 30])
    _, lots = oracle._drawer.draw()
    for piece in oracle._drawer.pieces(lots, 100):
        assert (piece.last - piece.first) * int(piece.lot.counts.max()) <= 100
    total = sum(piece.lot.size for piece in oracle._drawer.pieces(lots, 100))
    assert total == sum(len(lot) for lot in lots)


def test_torchs_global_generator_is_left_alone():
    oracle, theta = make_oracle(make_data())
    torch.manual_seed(5)
    before = torch.get_rng_state()
    oracle.gradient(theta)
    assert torch.equal(torch.get_rng_state(), before)


def test_diagnostics_have_lots_clipping_and_loss_only_when_asked():
    data = make_data()
    seen = []
    oracle, theta = make_oracle(data, lot_size=20, clip=0.1, diagnostics=seen)
    oracle.gradient(theta)
    (diagnostics,) = seen
    assert diagnostics.lot_sizes[0] == 20
    assert all(share > 0.5 for share in diagnostics.clipped_share)
    model = oracle._model
    losses = model.losses(theta[0], data.dataset.train.inputs[:20], data.dataset.train.targets[:20])
    assert diagnostics.loss[0] == pytest.approx(float(losses.mean()), rel=1e-5)
    quiet, theta = make_oracle(data)
    assert quiet._diagnostics is None


def test_a_plain_oracle_has_no_noise_and_says_so_in_the_ledger():
    data = make_data()
    result = tacit.train(
        tacit.Local(),
        model=lambda: nn.Linear(4, 3),
        data=data,
        privacy=tacit.NoPrivacy(lot_size=20),
        rounds=2,
        lr=0.1,
    )
    assert [(entry.owner, entry.event) for entry in result.ledger.entries()] == [(owner, None) for owner in data.owners]
    assert result.guarantees()[0].epsilon == float("inf")
    assert not result.release
