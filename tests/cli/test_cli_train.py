"""`tacit train` and `resume`, as a user types them, and what bad input gets."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from invoking import PLAIN, QUICK, complaint, one_line
from tampering import edit_log, gaussians

from tacit.cli.terminal.options import given_settings
from tacit.privacy import DurableLedger
from tacit.report import RecordedRun, write_report
from tacit.runs import RunFolder
from tacit.runs.config import RunConfig


def test_train_prints_the_plan_and_the_results(tacit, tmp_path):
    code, out, _ = tacit("train", *QUICK, "--name", "one")
    assert code == 0
    for part in ("noise multiplier σ", "sampling rate q", "6 and 2 spare", "a release", "in runs/one", "δ=1e-05"):
        assert part in out
    assert (tmp_path / "runs" / "one" / "summary.json").is_file()


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ([], ["split 0.5", "graph ring, 4 links; mixing: metropolis", "codec of messages dense"]),
        (
            ["--algorithm", "dsgd", "--graph", "matchings", "--codec", "topk:0.1", "--split", "iid"],
            ["split iid", "graph matchings,", "links, some of them in each round", "codec of messages topk:0.1"],
        ),
        (["--algorithm", "choco", "--mixing", "max_degree"], ["mixing: max_degree", "codec of messages qsgd:4"]),
        (["--algorithm", "sgd"], ["data digits, one agent with 1,"]),
    ],
    ids=["defaults", "links that change", "codec of the rule", "pooled"],
)
def test_the_plan_shows_data_graph_and_codec(tacit, options, rows):
    printed = one_line(tacit("train", *QUICK, "--rounds", 2, *options)[1])
    for row in rows:
        assert row in printed
    assert ("graph" in printed.split("model")[0]) == ("sgd" not in options)


def test_json_is_the_summary_and_nothing_else(tacit):
    code, out, _ = tacit("train", *QUICK, "--json", "--seed", 3)
    assert code == 0
    summary = json.loads(out)
    assert summary["rounds"] == 6
    assert len(summary["accuracy_per_agent"]) == 4
    assert summary["release"] is True
    assert summary["run"] == "runs/dsgt-digits-1"


def test_options_win_over_the_file(tacit, tmp_path):
    (tmp_path / "run.toml").write_text(
        'algorithm = "dsgd"\nagents = 4\nsplit = "iid"\nepsilon = 2.0\nrounds = 9\nlot_size = 24\n'
    )
    code, out, _ = tacit("train", "run.toml", "--rounds", 3, "--json")
    assert code == 0
    summary = json.loads(out)
    assert (summary["algorithm"], summary["rounds"]) == ("dsgd", 3)
    assert max(summary["epsilon_per_agent"]) <= 2.0


RIVALS = [
    ("epsilon = 2.0", ["--noise-multiplier", 5], {"noise_multiplier": 5.0}),
    ("noise_multiplier = 5.0", ["--epsilon", 2], {"epsilon": 2.0}),
    ("epsilon = 2.0", ["--no-private"], {"private": False}),
    ("noise_multiplier = 5.0\nprivate_diagnostics = true", ["--no-private"], {"private": False}),
    ("private = false", ["--epsilon", 2], {"epsilon": 2.0, "private": True}),
    (
        "epsilon = 2.0\ncarry = true\nprivate_diagnostics = true",
        ["--no-carry", "--no-private-diagnostics"],
        {"carry": False, "epsilon": 2.0},
    ),
    (
        'epsilon = 2.0\nalgorithm = "dsgd"\nstep = "momentum"',
        ["--algorithm", "dsgt"],
        {"algorithm": "dsgt", "epsilon": 2.0},
    ),
]


@pytest.mark.parametrize(("file", "options", "settled"), RIVALS, ids=[str(options) for _, options, _ in RIVALS])
def test_an_option_displaces_its_rival_in_the_file(tacit, tmp_path, file, options, settled):
    (tmp_path / "run.toml").write_text(f'agents = 4\nsplit = "iid"\nlot_size = 24\nrounds = 2\n{file}\n')
    code, _, error = tacit("train", "run.toml", *options, "--name", "one", "--quiet")
    assert code == 0, error
    config = RunFolder(tmp_path / "runs" / "one").config()
    for key in ("epsilon", "noise_multiplier"):
        assert getattr(config, key) == settled.get(key)
    assert settled.items() <= config.model_dump().items()
    assert not config.private_diagnostics


def test_a_runs_own_settings_can_be_fed_back(tacit, tmp_path):
    tacit("train", *QUICK, "--name", "one")
    assert tacit("train", "runs/one/config.toml", "--name", "two")[0] == 0
    one, two = (RunFolder(tmp_path / "runs" / name).config() for name in ("one", "two"))
    assert one == two


@pytest.mark.parametrize("algorithm", ["sgd", "local", "dsgd", "dsgt", "dinno"])
def test_a_run_without_privacy_is_shown_to_its_end(tacit, tmp_path, algorithm):
    words = ("train", *PLAIN, "--algorithm", algorithm)
    code, out, _ = tacit(*words, "--name", "one")
    assert code == 0
    run = one_line(out).split("a run without privacy has read these records: there is no guarantee; the ledger says so")
    assert run[0].split()[-1] == "none"
    assert run[1].endswith("in runs/one")
    code, out, _ = tacit(*words, "--name", "two", "--json")
    assert code == 0
    assert json.loads(out)["epsilon_per_agent"] is None
    assert json.loads((tmp_path / "runs" / "two" / "summary.json").read_text())["epsilon_per_agent"] is None
    assert tacit("report", "one")[0] == 0
    assert tacit("compare", "one", "two")[0] == 0
    assert "∞" not in tacit("list")[1]
    assert [row["epsilon"] for row in json.loads(tacit("list", "--json")[1])["runs"]] == [None, None]


def test_a_run_that_diverges_is_still_printed_as_json(tacit, tmp_path):
    code, out, _ = tacit("train", *PLAIN, "--lr", "1e30", "--name", "one", "--json")
    assert code == 0
    strict = {"parse_constant": lambda word: pytest.fail(f"{word} is no JSON")}
    assert json.loads(out, **strict)["consensus_distance"] is None
    for line in (tmp_path / "runs" / "one" / "events.jsonl").read_text().splitlines():
        json.loads(line, **strict)
    assert tacit("report", "one")[0] == 0
    assert "nan" not in tacit("list")[1]


def test_the_report_counts_what_the_ledger_holds(tacit, tmp_path):
    tacit("train", *QUICK, "--name", "one")
    folder = tmp_path / "runs" / "one"
    run = RecordedRun.load(folder)
    assert run.charged == run.queries == run.spent == 6
    edit_log(
        tmp_path / "runs" / "ledger.sqlite", lambda row: None if row["kind"] == "query" and row["number"] > 2 else row
    )
    less = RecordedRun.load(folder)
    assert less.charged is None
    write_report(less, folder / "report.html")
    assert "the ledger holds 2 queries of this run, but its events record 6" in (folder / "report.html").read_text()
    code, out, _ = tacit("ledger", "--verify")
    assert code == 1
    assert "run 'one' made 6 queries, but 2 are on record" in out


BAD = [
    ("train", "say how much privacy to give"),
    ("train --epsilon 1 --noise-multiplier 2", "not both"),
    ("train", "either --epsilon or --noise-multiplier, but not both; or --no-private"),
    ("train --no-private --epsilon 1", "--no-private guarantees nothing"),
    ("train --no-private --private", "--private and --no-private contradict each other"),
    ("train --epsilon -1", "--epsilon is -1.0; it must be greater than 0"),
    ("train --epsilon 1 --delta 2", "--delta is 2.0; it must be less than 1"),
    ("train --epsilon 1 --rounds 0", "--rounds is 0; it must be at least 1"),
    ("train --epsilon 1 --rounds many", "--rounds is 'many'; it must be a whole number"),
    ("train --epsilon 1 --agents 0", "agents is 0"),
    ("train --epsilon 1 --agents 5000", "cannot divide"),
    (
        "train --epsilon 1 --algorithm dsgdd",
        "--algorithm is 'dsgdd'; it must be one of sgd, local, dsgd, dsgt, dinno, local-dsgd, d2, extra, choco, deepsqueeze, sdm-dsgd, q-dpsgd-1, q-dpsgd-2, dp-srm, leasgd, muffliato, ad-psgd, pate; did you mean 'dsgd'?",
    ),
    ("train --epsilon 1 --dataset mnits", "did you mean 'mnist'"),
    ("train --epsilon 1 --dataset synthetic:few", "synthetic:RECORDS"),
    ("train --epsilon 1 --dataset my.csv", "tacit.data.DataSet.from_records"),
    ("train --epsilon 1 --model convnets", "did you mean 'convnet'"),
    ("train --epsilon 1 --split 2", "outside"),
    ("train --epsilon 1 --split dirichlet", "dirichlet:0.3"),
    ("train --epsilon 1 --graph rign", "did you mean 'ring'"),
    ("train --epsilon 1 --graph no/such/file.txt", "no/such/file.txt"),
    ("train --epsilon 1 --graph hypercube", "power"),
    ("train --epsilon 1 --graph random:fiedler=0.95", "out of reach"),
    ("train --epsilon 1 --graph star --mixing uniform", "average drifts"),
    ("train --epsilon 1 --lot-size 5000", "larger than agent 0's"),
    ("train --epsilon 1 --clip 0", "clip is 0"),
    ("train --epsilon 1 --accountant rdp --adjacency replace_one", "the pld accountant has one"),
    ("train --epsilon 1 --algorithm dsgt --step adam", "does not apply"),
    ("train --epsilon 1 --lr 0", "lr is 0"),
    ("train --epsilon 1 --device quantum", "device is 'quantum'"),
    ("train --epsilon 1 --name ../up", "cannot be called"),
    ("train --epsilon 1 --data-dir nowhere --dataset mnist", "nowhere"),
    ("train --epsilon 1 --roundz 3", "did you mean '--rounds'"),
    ("train missing.toml --epsilon 1", "missing.toml cannot be read: No such file or directory"),
    ("train digits --epsilon 1", "there is no file digits with settings; did you mean --dataset digits?"),
    ("train fashion-mnits", "there is no file fashion-mnits with settings; did you mean --dataset fashion-mnist?"),
    ("train synthetic:200 --epsilon 1", "did you mean --dataset synthetic:200?"),
    ("train q-dpsgd-2 --epsilon 1", "did you mean --algorithm q-dpsgd-2?"),
    ("train base:peers=2 --epsilon 1", "did you mean --graph base:peers=2?"),
    (
        "train --epsilon 1 --bands 2 --adjacency replace_one",
        "--bands divides records into groups, and a record that replaces another may be in another group; use --adjacency add_remove, or leave --bands out",
    ),
    ("audit replaced.toml", 'use adjacency = "add_remove", or leave bands out'),
    (
        "train --epsilon 1 --algorithm q-dpsgd-2 --adjacency replace_one",
        "under replace-one adjacency it has none; use --adjacency add_remove",
    ),
    (
        "train --noise-multiplier 4 --bands auto",
        "--bands auto compares noise at one ε; give --epsilon instead of --noise-multiplier, or a number of bands",
    ),
    ("train broken.toml --epsilon 1", "is not TOML"),
    ("train misspelt.toml", "did you mean 'rounds'"),
    ("train wrong.toml", "error: rounds is 'many'; it must be a whole number"),
    (
        "train negative.toml",
        "error: algorithm is 'dsgdd'; it must be one of sgd, local, dsgd, dsgt, dinno, local-dsgd, d2, extra, choco, deepsqueeze, sdm-dsgd, q-dpsgd-1, q-dpsgd-2, dp-srm, leasgd, muffliato, ad-psgd, pate; did you mean 'dsgd'?; epsilon is -1.0; "
        "it must be greater than 0",
    ),
    ("train --epsilon", "requires an argument (see 'tacit train --help')"),
    ("train --epsilon 1 --json=3", "(see 'tacit train --help')"),
    ("train --epsilon 1 --budget 0", "a budget's epsilon is 0.0; it must be positive"),
    ("train --no-private --budget 1", "--budget limits what private runs spend"),
    ("train --epsilon 1 --graph apart.txt", "connected"),
    ("train --epsilon 1 --graph pair.txt", "the graph has 2 agents, but 10 are wanted"),
    ("train --epsilon 1 --dataset synthetic --model convnet --lot-size 9", "channels, height, width"),
    ("train --no-private --private-diagnostics", "does not clip"),
    ("resume nowhere", "there is no run folder"),
    ("resume .", "has no config.toml"),
    ("ledger", "there is no ledger"),
    ("ledger --delta 7 --runs spent", "delta is 7"),
    ("frobnicate", "no such command 'frobnicate'"),
]


@pytest.mark.parametrize(("line", "message"), BAD, ids=[line for line, _ in BAD])
def test_bad_input_gets_a_sentence_and_leaves_nothing_behind(line, message, tacit, tmp_path):
    (tmp_path / "broken.toml").write_text("rounds = [")
    (tmp_path / "misspelt.toml").write_text("epsilon = 1.0\nrond = 3\n")
    (tmp_path / "wrong.toml").write_text('epsilon = 1.0\nrounds = "many"\n')
    (tmp_path / "negative.toml").write_text('epsilon = -1.0\nalgorithm = "dsgdd"\n')
    (tmp_path / "replaced.toml").write_text('epsilon = 1.0\nbands = 2\nadjacency = "replace_one"\n')
    (tmp_path / "apart.txt").write_text("0 1\n2 3\n")
    (tmp_path / "pair.txt").write_text("0 1\n")
    if "spent" in line:
        account = DurableLedger(tmp_path / "spent" / "ledger.sqlite").open(
            run="r", owners=["a"], mechanisms=gaussians([0.1], [1.0]), queries=1, release=True
        )
        account.spend()
    code, out, error = tacit(*line.split())
    assert code == 2
    said = one_line(error)
    assert message in said
    assert "Traceback" not in said + out
    assert not [path for path in (tmp_path / "runs").glob("*") if path.is_dir()]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("agents = true", "agents is True; it must be a whole number"),
        ('epsilon = "1"', "epsilon is '1'; it must be a number"),
        ('rounds = "5"', "rounds is '5'; it must be a whole number"),
        ('private = "yes"', "private is 'yes'; it must be true or false"),
        ("seed = 1.5", "seed is 1.5; it must be a whole number"),
        ("rounds = 1000000000000", "rounds is 1000000000000; it must be at most 1e+07"),
        ("rho = 3.0", "rho means nothing to dsgt"),
        ("momentum = 0.5", "momentum means nothing to dsgt"),
        ("averaging = 1.0", "averaging is 1.0; it must be less than 1"),
        ('algorithm = "local"\ngraph = "torus"', "graph means nothing to local"),
        ('algorithm = "dsgd"\nmomentum = 0.5', "momentum means nothing without step momentum"),
        ('dataset = "syntheticfoo"', "syntheticfoo"),
        ("noise_multiplier = 1e-9", "noise multiplier is 1e-09"),
    ],
)
def test_settings_of_the_wrong_kind_or_without_meaning_are_refused(tacit, tmp_path, line, message):
    promise = "" if "epsilon" in line or "noise" in line else "epsilon = 4.0\n"
    (tmp_path / "run.toml").write_text(f"{promise}{line}\n")
    code, out, err = tacit("train", "run.toml")
    assert code == 2
    assert out == ""
    assert message in one_line(err)
    assert not (tmp_path / "runs").exists() or not any(path.is_dir() for path in (tmp_path / "runs").iterdir())


def test_t_may_be_a_number_and_a_shared_file_serves_every_algorithm(tacit, tmp_path):
    (tmp_path / "run.toml").write_text(
        'algorithm = "dinno"\nrho = 0.7\nsplit = 0.5\nagents = 4\nnoise_multiplier = 3\nlot_size = 24\nrounds = 3\n'
    )
    for algorithm in ("dinno", "dsgt", "local"):
        assert tacit("train", "run.toml", "--algorithm", algorithm, "-q")[0] == 0


PER_AGENT = {"lot_size": [12.0, 24.0, 24.0, 36.0], "clip": [0.5, 1.0, 1.0, 2.0], "epsilon": [1.0, 2.0, 2.0, 4.0]}


def test_lot_size_clip_and_epsilon_are_given_per_agent(tacit, tmp_path):
    rest = ("--agents", 4, "--split", "iid", "--delta", "1e-3", "--rounds", 3, "--lr", 1)
    words = [
        word for key, value in PER_AGENT.items() for word in (f"--{key.replace('_', '-')}", ",".join(map(str, value)))
    ]
    code, _, error = tacit("train", *rest, *words, "--name", "options")
    assert code == 0, error
    (tmp_path / "run.toml").write_text("\n".join(f"{key} = {value}" for key, value in PER_AGENT.items()))
    assert tacit("train", "run.toml", *rest, "--name", "file")[0] == 0
    for name in ("options", "file"):
        plan = RunFolder.find(tmp_path / "runs" / name).events().plan
        assert list(plan.lot_sizes) == PER_AGENT["lot_size"]
        assert list(plan.clips) == PER_AGENT["clip"]
        assert list(plan.epsilon) == PER_AGENT["epsilon"]
        assert len(set(plan.noise_multipliers)) > 2
        spent = json.loads((tmp_path / "runs" / name / "summary.json").read_text())["epsilon_per_agent"]
        assert all(0.5 * target < value <= target for value, target in zip(spent, PER_AGENT["epsilon"], strict=True))
        assert tacit("report", name)[0] == 0
    assert tacit("train", "runs/options/config.toml", "--name", "copy")[0] == 0
    assert tacit("ledger", "--verify")[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--lot-size", "12,24"), "--lot-size has 2 values, but there are 4 agents; give one for each, or one for all"),
        (("--lot-size", "12,24,x,4"), "--lot-size is '12,24,x,4'; it must be a number, or one for each agent"),
        (("--clip", "1,1,0,1"), "--clip is [1.0, 1.0, 0.0, 1.0]; it must be greater than 0"),
        (("--lot-size", "12,24,24,24", "--algorithm", "sgd"), "has 4 values, but sgd trains one agent"),
    ],
)
def test_values_per_agent_that_make_no_sense_are_refused(tacit, words, said):
    code, _, error = tacit("train", *QUICK, *words)
    assert code == 2
    assert said in one_line(error)


@pytest.mark.parametrize(("word", "kept"), [("auto", "auto"), ("true", True), ("no", False), ("False", False)])
def test_compile_takes_the_words_of_the_library(word, kept):
    config = RunConfig.of({"epsilon": 1.0}, given_settings(dict.fromkeys(RunConfig.model_fields) | {"compile": word}))
    assert config.compile is kept or config.compile == kept == "auto"
    assert RunConfig.of(tomllib.loads(config.to_toml())) == config


def test_another_word_for_compile_is_refused(tacit, tmp_path):
    said = 'it must be true, false or "auto"'
    assert f"--compile is 'always'; {said}" in one_line(tacit("train", *QUICK, "--compile", "always")[2])
    (tmp_path / "run.toml").write_text('compile = "never"\n')
    assert f"compile is 'never'; {said}" in one_line(tacit("train", "run.toml", *QUICK)[2])


def test_a_dirichlet_split_takes_a_least_size(tacit, tmp_path):
    rest = ("--agents", 4, "--lot-size", 10, "--rounds", 1, "--noise-multiplier", 3)
    assert tacit("train", *rest, "--split", "dirichlet:0.3,min_size=150", "--name", "one")[0] == 0
    (tmp_path / "run.toml").write_text('split = "dirichlet:0.3, min_size=150"\n')
    assert tacit("train", "run.toml", *rest, "--name", "two")[0] == 0
    for name in ("one", "two"):
        plan = RunFolder.find(tmp_path / "runs" / name).events().plan
        assert min(plan.sizes) >= 150
        assert "min_size=150" in plan.owners[0]
    for text in ("dirichlet:0.3,min_size=x", "dirichlet:0.3,least=3", "dirichlet:0.3,"):
        code, _, error = tacit("train", *rest, "--split", text)
        assert code == 2
        assert "write a whole number as in dirichlet:0.3,min_size=50" in one_line(error)
    assert "not the 900 asked for" in one_line(tacit("train", *rest, "--split", "dirichlet:0.3,min_size=900")[2])


def test_a_graph_file_with_names_and_weights_is_mixed_by_them(tacit, tmp_path):
    (tmp_path / "links.txt").write_text("north south 0.4\nsouth west 0.4\nwest east 0.3\n")
    code, _, error = tacit("train", *QUICK, "--graph", "links.txt", "--name", "one")
    assert code == 0, error
    plan = RunFolder.find(tmp_path / "runs" / "one").events().plan
    assert plan.edges == ((0, 3), (1, 2), (2, 3)), "east, north, south, west"
    assert plan.weights == (0.3, 0.4, 0.4)
    assert tacit("report", "one")[0] == 0
    code, _, error = tacit("train", *QUICK, "--graph", "links.txt", "--mixing", "max_degree")
    assert code == 2
    assert "the graph's file has its own weights" in one_line(error)


def test_the_plan_of_a_short_run_states_how_much_it_scores(tacit):
    """Six rounds of 24 records and all validation records at the end."""
    code, out, error = tacit("train", *QUICK, "--name", "one")
    assert code == 0, error
    assert re.search(
        r"scoring +[\d.]+ records for each one trained on: all \d+ validation records at the end", one_line(out)
    )
    code, out, error = tacit("train", *QUICK, "--name", "two", "--rounds", "300")
    assert code == 0, error
    assert "for each one trained on" not in out


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--learning-rate", "did you mean '--lr'?"),
        ("--eps", "did you mean '--epsilon'?"),
        ("--batch-size", "did you mean '--lot-size'?"),
        (
            "--epochs",
            "did you mean '--rounds' (in a round, each agent is asked about a lot, not about all of its records)?",
        ),
        ("--roundz", "did you mean '--rounds'?"),
    ],
)
def test_options_are_also_known_by_their_names_in_other_libraries(given, meant, empty_folder):
    assert one_line(complaint("train", given, "3")) == f"unknown option '{given}'; {meant} (see 'tacit train --help')"


def test_settings_in_a_file_and_parameters_of_a_search_are_known_by_the_same_names(empty_folder):
    Path("run.toml").write_text("learning_rate = 1\n")
    assert "unknown setting 'learning_rate'; did you mean 'lr'?" in complaint("train", "run.toml")
    Path("run.toml").write_text("epsilon = 3\n")
    said = complaint("tune", "run.toml", "--parameter", "learning_rate=1,2")
    assert "unknown parameter 'learning_rate'; did you mean 'lr'?" in said


def test_a_data_folder_that_does_not_exist_is_refused_before_anything_is_created(tacit, tmp_path):
    code, out, error = tacit("train", "--dataset", "mnist", "--data-dir", "nowhere", "--epsilon", "4")
    assert (code, out) == (2, "")
    assert "error: the data folder nowhere does not exist; create it, or name another one" in one_line(error)
    assert not any(tmp_path.rglob("*MNIST*"))
    assert not (tmp_path / "nowhere").exists()
