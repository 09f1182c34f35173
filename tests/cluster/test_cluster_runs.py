"""A run on several ranks is the run of one process: the same models to the bit, the same folder, the right ledger."""

import os
import threading
from contextlib import closing
from functools import partial

import numpy as np
import pytest
from playing import PLACES, SETTINGS, Kill, config, play
from ranks import on_ranks as on_joined_ranks
from safetensors import safe_open

import tacit
from tacit import Budget
from tacit.cli.commands.ledger_verification import find_misstatements
from tacit.cluster.agreeing import agree_on_secrets
from tacit.cluster.following import Follower, follow
from tacit.cluster.group import Group
from tacit.cluster.leading import Lead
from tacit.errors import InvalidInput, PrivacyError, StorageError
from tacit.privacy import DurableLedger, Ledger
from tacit.privacy.charges import ShardAccount, charges_file, charges_of
from tacit.privacy.noise_kinds import Masks
from tacit.runs import Runner
from tacit.runs.config import RunConfig
from tacit.runs.folder import RunFolder

ROUNDS = SETTINGS["rounds"]
on_ranks = partial(on_joined_ranks, joined=False)


def summary(runs, name="one"):
    return RunFolder(runs / name).summary()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The run by a single process, with the steps that workers have."""
    runs = tmp_path_factory.mktemp("alone")
    with Runner.start(runs, "one", config(step_agents=5)) as runner:
        runner.play(stop=lambda: False)
    return runs


def assert_whole(runs, ranks, spent=ROUNDS, name="one"):
    """The ledger holds every query, the files of other ranks agree, and nothing is wrong with any of them."""
    ledger = DurableLedger(runs / "ledger.sqlite", read_only=True)
    account = ledger.account(name)
    assert (account.state, account.spent) == ("finished", spent)
    assert len(account.lines) == SETTINGS["agents"]
    charged = charges_of(runs / "ledger.sqlite", account.token)
    assert sorted(charged) == list(range(1, ranks))
    assert all(ROUNDS <= each.queries <= spent for each in charged.values())
    assert ledger.verify() == []


def assert_missing_charges_are_found(runs):
    """Take the last line of another rank's charges away, then all of them, and put them back."""
    with closing(DurableLedger(runs / "ledger.sqlite", read_only=True)) as ledger:
        assert list(find_misstatements(ledger, ledger, runs)) == []
        file = charges_file(ledger.path, ledger.account("one").token, 1)
        kept = file.read_bytes()
        file.write_bytes(b"".join(kept.splitlines(keepends=True)[:-1]))
        (fewer,) = find_misstatements(ledger, ledger, runs)
        assert f"rank 1 has charged {ROUNDS - 1} queries of {ROUNDS} that every agent answered" in fewer
        file.unlink()
        (missing,) = find_misstatements(ledger, ledger, runs)
        assert "the charges of rank 1 are missing" in missing
        file.write_bytes(kept)


def test_two_ranks_give_the_run_of_one_process(tmp_path, alone):
    (lost, _, described), _ = on_ranks(2, play, tmp_path, "one", {"workers": 2})
    assert lost == 0
    assert described.startswith("2, each with 2 to 3 agents; ")
    ours, theirs = summary(tmp_path), summary(alone)
    assert ours["models_sha256"] == theirs["models_sha256"]
    for key in ("accuracy_per_agent", "bytes_sent", "consensus_distance", "epsilon_per_agent"):
        assert ours[key] == pytest.approx(theirs[key])
    assert_whole(tmp_path, 2)
    assert_missing_charges_are_found(tmp_path)
    plan, other = (RunFolder(runs / "one").events().plan for runs in (tmp_path, alone))
    assert (plan.owners, plan.sizes, plan.counts, plan.mechanisms) == (
        other.owners,
        other.sizes,
        other.counts,
        other.mechanisms,
    )


def watch_bytes(rank, runs, settings):
    """Play a run on one rank, and return on rank 0 what all agents had sent after each round, as it is shown."""
    group, chosen = Group.join(30.0), RunConfig.of(SETTINGS | settings).pinned()
    try:
        if rank:
            return follow(group, chosen)
        shown = []
        with Runner.start(runs, "one", chosen, team=Lead(group, chosen)) as runner:
            runner.play(stop=lambda: False, on_round=lambda now: shown.append(now.bytes_sent))
        return shown
    finally:
        group.close()


def test_what_all_ranks_sent_is_known_between_snapshots(tmp_path):
    sparse = {"evaluate_every": 100, "algorithm": "dsgd"}
    alone = []
    with Runner.start(tmp_path / "alone", "one", config(**sparse)) as runner:
        runner.play(stop=lambda: False, on_round=lambda now: alone.append(now.bytes_sent))
    shown, _ = on_ranks(2, watch_bytes, tmp_path / "several", {"workers": 2, **sparse})
    assert len(set(alone)) == ROUNDS
    assert shown == alone


def test_labels_of_all_ranks_are_counted(tmp_path):
    asked = {"algorithm": "pate:teachers=4,records=40,answers=20,teacher_steps=5", "split": "iid", "lot_size": 64.0}
    with Runner.start(tmp_path / "alone", "one", config(**asked)) as runner:
        runner.play(stop=lambda: False)
    on_ranks(2, play, tmp_path / "several", "one", {"workers": 2, **asked})
    ours, theirs = (summary(tmp_path / which)["labels_per_agent"] for which in ("several", "alone"))
    assert ours == theirs
    assert len(ours) == 5
    assert sum(ours) > 0


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 3, 5])
def test_any_number_of_ranks_gives_the_run_of_one_process(ranks, tmp_path, alone):
    on_ranks(ranks, play, tmp_path, "one", {"workers": ranks})
    assert summary(tmp_path)["models_sha256"] == summary(alone)["models_sha256"]
    assert_whole(tmp_path, ranks)


@pytest.mark.parametrize(
    "noise",
    [pytest.param({}, marks=pytest.mark.slow), {"noise": "cancelling", "mask_ratio": 2.0}],
    ids=["own noise", "masks"],
)
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_bands_on_several_ranks_are_those_of_one_process(ranks, noise, tmp_path):
    """Each rank remembers the sums of its own agents, and the queries that all were charged say whose turn it is."""
    banded = {"bands": 3, "lot_size": 12, **noise}
    with Runner.start(tmp_path / "alone", "one", config(step_agents=5, **banded)) as runner:
        assert len(runner.session.plan.bands) == 3
        runner.play(stop=lambda: False)
    on_ranks(ranks, play, tmp_path / "several", "one", {"workers": ranks, **banded})
    assert summary(tmp_path / "several")["models_sha256"] == summary(tmp_path / "alone")["models_sha256"]
    assert_whole(tmp_path / "several", ranks)


KINDS = {
    "dsgd on matchings": {"algorithm": "dsgd", "graph": "matchings"},
    "dinno": {"algorithm": "dinno", "lr": 0.01},
    "choco with a codec": {"algorithm": "choco", "codec": "topk:0.1", "lr": 0.1},
    "masks": {"noise": "cancelling", "mask_ratio": 2.0},
    "discrete noise": {"noise": "discrete", "accountant": "rdp"},
    "base schedule": {"algorithm": "dsgd", "graph": "base:peers=1"},
    "without privacy": {"private": False, "noise_multiplier": None},
    "fast sources": {"source": "fast"},
    "momentum": {"algorithm": "dsgd", "step": "momentum"},
}


def play_both(rank, folder, kinds):
    """Play each run on both ranks, and alone on rank 0."""
    for name, changes in kinds.items():
        settings = {"rounds": 4, "workers": 2} | changes
        if rank == 0:
            with Runner.start(folder / "alone", name.replace(" ", "-"), config(**settings | {"workers": 1})) as runner:
                runner.play(stop=lambda: False)
        play(rank, folder / "two", name.replace(" ", "-"), settings, deadline=120.0)


@pytest.mark.slow
def test_every_kind_of_run_has_the_same_models_on_one_worker_and_on_two(tmp_path):
    on_ranks(2, play_both, tmp_path, KINDS, timeout=600)
    for name in KINDS:
        one, two = (summary(tmp_path / place, name.replace(" ", "-")) for place in ("alone", "two"))
        assert one["models_sha256"] == two["models_sha256"], name
    assert len({summary(tmp_path / "two", name.replace(" ", "-"))["models_sha256"] for name in KINDS}) == len(KINDS)


# With 8 rounds and a checkpoint every 3: which call is fatal, and how many answers are charged and lost.
KILLS = [
    (Kill(1, "an answer is written", 5), 1),
    (Kill(0, "rank 0 has others commit", 2), 0),
    (Kill(0, "an answer is written", 2), 1),
    (Kill(1, "a follower has saved", 2), 0),
    (Kill(1, "a follower commits", 1), 0),
    (Kill(0, "rank 0 saves", 1), 0),
    (Kill(0, "rank 0 ends the run", 1), 0),
]


@pytest.mark.parametrize(
    ("kill", "lost"),
    [pytest.param(*case, marks=() if place < 1 else pytest.mark.slow) for place, case in enumerate(KILLS)],
)
def test_after_a_kill_the_group_resumes_with_the_same_models_and_the_right_ledger(kill, lost, tmp_path, alone):
    assert {case.where for case, _ in KILLS} == set(PLACES)
    found = on_ranks(2, play, tmp_path, "one", {"workers": 2}, kill, may_fail=True)
    assert found[kill.rank] is None
    assert "RankLost" in found[1 - kill.rank] or kill.where == "rank 0 ends the run"
    assert RunFolder(tmp_path / "one").summary() is None
    assert DurableLedger(tmp_path / "ledger.sqlite", read_only=True).verify() == []
    (counted, _, _), _ = on_ranks(2, play, tmp_path, "one", {"workers": 2})
    assert counted == lost
    assert summary(tmp_path)["models_sha256"] == summary(alone)["models_sha256"]
    assert_whole(tmp_path, 2, ROUNDS + lost)


@pytest.mark.slow
def test_a_killed_run_that_is_abandoned_counts_what_any_rank_asked(tmp_path):
    """Rank 0 dies before it writes the answer to its fourth query; rank 1 may have asked as often."""
    on_ranks(2, play, tmp_path, "one", {"workers": 2}, Kill(0, "an answer is written", 4), may_fail=True)
    ledger = DurableLedger(tmp_path / "ledger.sqlite")
    account = ledger.account("one")
    other = charges_of(ledger.path, account.token)[1].queries
    ledger.abandon("one", reason="test", who="test")
    assert ledger.account("one").spent == max(4, other)
    assert ledger.verify() == []


def test_a_run_is_not_abandoned_while_any_rank_works_on_it(tmp_path):
    path = tmp_path / "ledger.sqlite"
    plan = tacit.Privacy(noise_multiplier=1.0, delta=1e-5, clip=1.0, lot_size=5).plan([64], 10)
    ledger = DurableLedger(path)
    account = ledger.open(run="one", owners=["a"], mechanisms=plan.mechanisms, queries=10, release=True)
    ledger.close()  # rank 0 is gone, and rank 1 has not noticed yet
    follower = ShardAccount(path, account.token, 1, "one", account.lines, 10)
    other = DurableLedger(path)
    with pytest.raises(PrivacyError, match="a process of rank 1 is working on run 'one'; stop it first"):
        other.abandon("one", reason="test", who="test")
    follower.spend()
    assert other.account("one").state == "open"
    follower.close()
    other.abandon("one", reason="test", who="test")
    assert (other.account("one").state, other.account("one").spent) == ("abandoned", 1)
    assert other.verify() == []


def test_a_rank_that_differs_ends_all_with_one_sentence(tmp_path):
    found = on_ranks(2, play_apart, tmp_path, may_fail=True)
    assert "lr is 1.0 on rank 0 and 2.0 on rank 1; all ranks need the same versions, settings and files" in found[0]
    assert "RankFailed: rank 0: lr is 1.0" in found[1]
    assert not (tmp_path / "one").exists()
    assert not DurableLedger(tmp_path / "ledger.sqlite", read_only=True).entries()


def play_apart(rank, runs):
    return play(rank, runs, "one", {"workers": 2, "lr": 1.0 + rank})


@pytest.mark.slow
@pytest.mark.parametrize("blind", [0, 1])
def test_a_graph_that_one_rank_does_not_see_ends_all_with_one_sentence(blind, tmp_path):
    (tmp_path / "there.csv").write_text("0,1\n1,2\n2,3\n3,4\n")
    found = on_ranks(2, play_blind, tmp_path, blind, may_fail=True)
    assert "there.csv" in found[blind]
    assert f"RankFailed: rank {blind}: " in found[1 - blind]
    assert not (tmp_path / "runs" / "one").exists()


def play_blind(rank, folder, blind):
    os.chdir(folder if rank != blind else "/")
    return play(rank, folder / "runs", "one", {"workers": 2, "graph": "there.csv"})


@pytest.mark.slow
def test_a_run_that_does_not_fit_its_budget_is_refused_on_all_ranks(tmp_path):
    DurableLedger(tmp_path / "ledger.sqlite", Budget(epsilon=0.1, delta=1e-3)).close()
    found = on_ranks(2, play, tmp_path, "one", {"workers": 2}, may_fail=True)
    assert "BudgetExceeded" in found[0]
    assert "RankFailed: rank 0: " in found[1]
    assert not list(tmp_path.glob("ledger.sqlite.charges/*"))


@pytest.mark.slow
def test_a_silent_rank_is_given_up_after_the_deadline(tmp_path):
    found = on_ranks(2, play_silent, tmp_path, may_fail=True, timeout=60)
    assert "RankLost" in found[0]
    assert "did not answer within the deadline" in found[0]


def play_silent(rank, runs):
    if rank:
        Follower._commit = lambda self: threading.Event().wait(20)
    return play(rank, runs, "one", {"workers": 2}, deadline=4.0)


@pytest.mark.slow
@pytest.mark.chance(1e-9)
def test_secret_masks_cancel_between_ranks(tmp_path):
    """After one query of all, the average model has moved by the clipped average and own noise: hundreds of times less than by masks.

    Own noise has a norm of lr·√(Σ own²·params)/agents, which it hardly ever exceeds threefold. The start has one of 2, the
    clipped average one of at most 2.
    """
    noisy = {"source": "secret", "noise": "cancelling", "curious": 1, "mask_ratio": 450.0, "noise_multiplier": 0.5}
    settings = {"workers": 2, "rounds": 1, "gossip_rounds": 60, "lr": 10.0} | noisy
    (_, agreed, _), _ = on_ranks(2, play, tmp_path, "one", settings)
    assert agreed
    assert summary(tmp_path)["release"]
    plan = RunFolder(tmp_path / "one").events().plan
    agents, masks = plan.agents, Masks.of_json(plan.masks)
    with safe_open(str(tmp_path / "one" / "models.safetensors"), framework="pt") as file:
        average = file.get_tensor("theta").double().mean(0)
    own = 10.0 * float(np.square(masks.own).sum() * plan.params) ** 0.5 / agents
    left = 10.0 * masks.size * (2 * plan.params) ** 0.5 / agents  # of one pair that does not cancel
    assert float(average.norm()) < 3 * own + 2 + 10.0 * 2
    assert 3 * own + 22 < left / 20


def answer_ends(rank, pairs):
    """Return the first words of the masks of these pairs, of those with an end on this rank."""
    group = Group.join(20.0)
    shards = ((0, 2), (1, 3))
    sources = agree_on_secrets(group, shards)
    own = [pair for pair in pairs if set(pair) & set(shards[rank])]
    streams = [source.next()() for source in sources.make_masks(own, "run")]
    found = {pair: stream.words(4).tolist() for pair, stream in zip(own, streams, strict=True)}
    group.close()
    return found


@pytest.mark.slow
def test_both_ends_of_a_pair_on_two_ranks_draw_the_same_mask_and_no_other_pair_does():
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    here, there = on_ranks(2, answer_ends, pairs)
    again, _ = on_ranks(2, answer_ends, pairs)
    for pair in [(0, 1), (0, 3), (1, 2), (2, 3)]:
        assert here[pair] == there[pair] != again[pair]
    assert len({tuple(words) for words in here.values()}) == 5
    assert (1, 3) not in here
    assert (0, 2) not in there


def test_charges_of_an_unknown_run_or_that_were_changed_are_found(tmp_path, alone):
    with Runner.start(tmp_path, "one", config()) as runner:
        runner.play(stop=lambda: False)
    path, lines = tmp_path / "ledger.sqlite", runner.account.lines[:2]
    account = ShardAccount(path, runner.account.token, 1, "one", lines, ROUNDS + 1)
    for _ in range(ROUNDS):
        account.spend()
    account.close()
    ledger = DurableLedger(path, read_only=True)
    assert ledger.verify() == []
    again = ShardAccount(path, runner.account.token, 1, "one", lines, ROUNDS + 1)
    assert again.spent == ROUNDS
    again.spend()
    with pytest.raises(PrivacyError, match="has made all 9 queries"):
        again.spend()
    (problem,) = ledger.verify()
    assert (
        f"rank 1 of run 'one' has charged 9 queries, but the ledger has {ROUNDS} for the run, which is finished"
        in problem
    )
    file = charges_file(path, runner.account.token, 1)
    file.write_bytes(file.read_bytes()[:-5])  # a crash cut the last line off: it was not charged
    assert ledger.verify() == []
    text = file.read_text().splitlines(keepends=True)
    file.write_text("".join([text[0], *text[2:]]))
    (problem,) = ledger.verify()
    assert "was changed or is damaged at line 2" in problem
    file.rename(charges_file(path, "00", 1))
    (problem,) = ledger.verify()
    assert "holds charges of a run that the ledger does not know" in problem


def test_one_process_does_not_resume_what_several_began(tmp_path):
    with Runner.start(tmp_path, "one", config()) as runner:
        runner.play(stop=lambda: True)
    path, folder = tmp_path / "ledger.sqlite", runner.folder
    folder.shards_file.parent.mkdir()
    folder.shards_file.touch()
    with pytest.raises(InvalidInput, match="started by several processes; resume it with `tacit resume one`"):
        tacit.resume(folder.path)
    folder.shards_file.unlink()
    account = ShardAccount(path, runner.account.token, 1, "one", runner.account.lines[:2], ROUNDS)
    account.spend()
    account.close()
    with pytest.raises(InvalidInput, match="started by several processes"):
        tacit.resume(folder.path)
    charges_file(path, runner.account.token, 1).unlink()
    assert tacit.resume(folder.path).ledger.account("one").spent == ROUNDS


def test_a_file_of_charges_belongs_to_one_process_at_a_time(tmp_path):
    plan = tacit.Privacy(noise_multiplier=1.0, delta=1e-5, clip=1.0, lot_size=5).plan([64], 10)
    whole = Ledger().open(run="one", owners=["a"], mechanisms=plan.mechanisms, queries=10, release=True)

    def join():
        return ShardAccount(tmp_path / "ledger.sqlite", "ab" * 8, 1, "one", whole.lines, 10)

    first = join()
    first.spend()
    with pytest.raises(StorageError, match="another process of rank 1 is charging its queries there"):
        join()
    first.spend()
    first.close()
    second = join()
    assert second.spent == 2
    with charges_file(tmp_path / "ledger.sqlite", "ab" * 8, 1).open("ab") as other:
        other.write(b"3 ")
    with pytest.raises(StorageError, match="was changed since this process wrote to it"):
        second.spend()
    assert second.spent == 2
