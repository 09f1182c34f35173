"""Run folders of runs whose noise has bands: settings, plan, ledger, and resumes that start the bands anew."""

import tomllib
from contextlib import closing
from dataclasses import replace

import forked
import pytest
import torch
from test_masked_runs import play, play_until_killed
from typer.testing import CliRunner

import tacit
from tacit.cli import app
from tacit.errors import InvalidInput
from tacit.privacy import DurableLedger
from tacit.privacy.lots import LotDrawer
from tacit.privacy.mechanisms import Cyclic
from tacit.runs import RunFolder, Runner
from tacit.runs.config import RunConfig

BASE = {
    "dataset": "digits",
    "agents": 4,
    "split": "iid",
    "noise_multiplier": 2.0,
    "lot_size": 24,
    "rounds": 10,
    "source": "seeded",
    "checkpoint_every": 5,
    "bands": 4,
}


def config(**changes):
    return RunConfig.of(BASE | changes)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run with masks that nothing interrupted."""
    runs = tmp_path_factory.mktemp("whole")
    result = play(Runner.start(runs, "one", config(noise="cancelling", mask_ratio=1.0)))
    return replace(result, ledger=DurableLedger(runs / "ledger.sqlite", read_only=True))


def test_plan_and_ledger_keep_the_bands(whole):
    folder = RunFolder.find(whole.folder)
    plan = folder.events().plan
    assert plan.bands == whole.plan.bands
    assert len(plan.bands) == 4
    with closing(DurableLedger(folder.ledger_file, read_only=True)) as ledger:
        mechanisms = tuple(line.mechanism for line in ledger.account("one").lines)
    assert mechanisms == plan.mechanisms == whole.plan.mechanisms
    assert all(isinstance(each.sampler, Cyclic) for each in mechanisms)
    event = mechanisms[0].event(10)
    assert (event.count, event.sample_rate) == (3, 4 * plan.sample_rates[0])
    again = tacit.load(whole.folder)
    assert again.plan.mechanisms == whole.plan.mechanisms
    assert [each.epsilon for each in again.guarantees()] == [each.epsilon for each in whole.guarantees()]


def test_the_evidence_of_a_run_with_bands_is_verified(whole):
    said = CliRunner().invoke(app, ["ledger", "--runs", str(whole.folder.parent), "--delta", "1e-5", "--verify"])
    assert said.exit_code == 0, said.output
    said = CliRunner().invoke(app, ["verify", str(whole.folder)])
    assert said.exit_code == 0, said.output
    assert "replayed from its seeds" in " ".join(said.output.split())


@pytest.mark.parametrize("source", ["seeded", "secret"])
@pytest.mark.parametrize(("moment", "lost"), [("between compute and release", 0), ("between charge and record", 1)])
def test_a_killed_run_starts_its_bands_anew_and_a_lost_query_has_had_its_turn(
    tmp_path, monkeypatch, source, moment, lost
):
    with Runner.start(tmp_path, "one", config(source=source)):
        pass
    child, said = forked.start(play_until_killed, tmp_path / "one", moment)
    with said:
        child.join()
    assert child.exitcode == -9
    turns, draw = [], LotDrawer.draw

    def watched(self, query=0):
        turns.append(query)
        return draw(self, query)

    monkeypatch.setattr(LotDrawer, "draw", watched)
    with Runner.resume(tmp_path / "one") as runner:
        noise = runner.session.real_oracle._noise
        assert not noise._past, "nothing of the sums before the kill was kept"
        runner.play(stop=lambda: False)
    assert turns == list(range(3 + lost, 10 + lost))
    with closing(DurableLedger(tmp_path / "ledger.sqlite")) as ledger:
        account = ledger.account("one")
        assert account.spent == 10 + lost
        assert account.lines[0].event(account.spent).count == 3
    if source == "seeded":
        said = CliRunner().invoke(app, ["verify", str(tmp_path / "one")])
        assert said.exit_code == 0, said.output
        assert "restarted the bands of its noise" in " ".join(said.output.split())


def test_sums_of_earlier_queries_are_in_no_file(tmp_path):
    """They are multiples of a quantum, unlike answers; every file is searched for the bytes of their first numbers."""
    with Runner.start(tmp_path, "one", config(source="secret", checkpoint_every=1)) as runner:
        rounds = iter(range(8))
        runner.play(stop=lambda: next(rounds, None) is None)
        past = runner.session.real_oracle._noise._past
        numbers = torch.cat([parts.sums.flatten() for one in past.values() for parts in one.values()])
        numbers = numbers[numbers != 0][:200]
        assert len(numbers) == 200
        pieces = [number.numpy().tobytes() for number in numbers]
        for file in (path for path in tmp_path.rglob("*") if path.is_file()):
            content = file.read_bytes()
            assert not any(piece in content for piece in pieces), file


def test_a_run_from_python_and_a_file_keep_the_number_of_bands(tmp_path):
    assert RunConfig.of(tomllib.loads(config().to_toml())).bands == 4
    result = tacit.train(
        tacit.DSGD(),
        model=tacit.models.logistic((1, 8, 8), 10),
        data=tacit.data.load("digits").split(4, tacit.data.IID()),
        graph=tacit.graphs.ring(4),
        privacy=tacit.Privacy(epsilon=8.0, delta=1e-5, clip=1.0, lot_size=24, bands="auto"),
        rounds=8,
        lr=0.5,
        sources=tacit.Seeded(0),
        run="one",
        runs=tmp_path,
    )
    assert len(result.plan.bands) > 1
    assert tomllib.loads((tmp_path / "one" / "config.toml").read_text())["bands"] == "auto"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bands": 0}, "whole number from 1 to 128"),
        ({"bands": "many"}, "whole number from 1 to 128"),
        ({"private": False, "noise_multiplier": None}, "a run without privacy adds none"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, message):
    settings = {key: value for key, value in (BASE | changes).items() if value is not None}
    with pytest.raises(InvalidInput, match=message):
        RunConfig.of(settings)
