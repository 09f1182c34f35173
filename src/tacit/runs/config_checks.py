"""Which settings of a run make sense together, and how an error names them: as keys of a file, or as options of a command line."""

import os
from collections.abc import Collection, Mapping
from dataclasses import Field, fields
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tacit.errors import InvalidInput, choose
from tacit.registry import DATA_SETS, GRAPHS, LOSSES, MODELS, RULES, SCHEDULES, rule_line
from tacit.runs.user_code import is_user_code

if TYPE_CHECKING:
    from tacit.runs.config import RunConfig

PER_AGENT = ("epsilon", "noise_multiplier", "clip", "lot_size")
"""Settings that may have one value for each agent."""
OF_MASKS = ("curious", "keys", "mask_ratio", "lost")
"""Settings that mean something only where noise cancels."""
OF_NOISE = (*OF_MASKS, "rounding_bits")
_OF_KIND: dict[str, tuple[str, ...]] = {"cancelling": OF_MASKS, "discrete": ("rounding_bits",)}
"""Settings by the kind of noise that they need."""
OF_WORKERS = ("placement",)
"""Settings that mean something only where workers share the agents."""
OF_RULES = ("carry", "inner_steps", "rho", "rho_growth")
"""Settings for fields of a rule, besides its step."""
_OF_LINKS = {"graph", "mixing", "allow_drift", "noise", *OF_MASKS, "gossip_rounds", "exchanges_per_query", "absences"}


_OF_SUMS = {"clip", "lot_size", "unit", "bands", "noise", *OF_NOISE, "private_diagnostics", "absences"}


def as_option(key: str) -> str:
    """Return the option of `tacit train` that sets a key."""
    return f"--{key.replace('_', '-')}"


class _FileNames(dict[str, str]):
    """Names a setting as a file does."""

    def __missing__(self, key: str) -> str:
        return key


class _OptionNames(dict[str, str]):
    """Names a setting as a command line does."""

    def __missing__(self, key: str) -> str:
        return as_option(key)


Names = Mapping[str, str]
"""What each setting is called in an error."""
KEYS: Names = _FileNames(
    no_private="private = false",
    cancelling='noise = "cancelling"',
    discrete='noise = "discrete"',
    add_remove='adjacency = "add_remove"',
)
OPTIONS: Names = _OptionNames(
    no_private="--no-private",
    cancelling="--noise cancelling",
    discrete="--noise discrete",
    add_remove="--adjacency add_remove",
)


def displaced(options: Mapping[str, Any]) -> Collection[str]:
    """Return the settings of a file that cannot stand beside these options."""
    found: set[str] = set()
    if options.get("epsilon") is not None:
        found |= {"noise_multiplier", "private"}
    if options.get("noise_multiplier") is not None:
        found |= {"epsilon", "private"}
    if options.get("private") is False:
        found |= {"epsilon", "noise_multiplier", "private_diagnostics", "unit", "bands", "noise", *OF_NOISE}
    if (noise := options.get("noise")) is not None:
        found |= {key for kind, keys in _OF_KIND.items() if kind != noise for key in keys}
        if noise == "discrete":
            found |= {"accountant"}
    if options.get("algorithm") is not None:
        algorithm = str(options["algorithm"])
        found |= _idle(algorithm) | _idle_fields(algorithm)
        line = rule_line(algorithm)
        if line is not None and line.discrete:
            found |= {"noise", "accountant"}
        if line is not None and line.votes:
            found |= {"spare_queries"}
    return found


def _idle(algorithm: str) -> set[str]:
    """Return the settings of links, lots and noise that mean nothing to an algorithm."""
    line = rule_line(algorithm)
    if line is not None and line.votes:
        return _OF_SUMS
    if line is not None and not line.exchanges:
        return _OF_LINKS
    return set() if line is None or line.mixes else {"exchanges_per_query"}


def _idle_fields(algorithm: str) -> set[str]:
    """Return the settings of rules that mean nothing to an algorithm. To know its fields, it is imported."""
    idle = {*OF_RULES, "step", "codec", "momentum"}
    if rule_line(algorithm) is None:  # a rule of the user's own has its own settings
        return idle
    return idle - fields_set_by_settings(algorithm) - ({"momentum"} if "step" in fields_of_rule(algorithm) else set())


def fields_of_rule(algorithm: str) -> "dict[str, Field[Any]]":
    """Return the fields of a shipped rule by name."""
    return {field.name: field for field in fields(RULES[algorithm.strip().partition(":")[0]])}


def fields_set_by_settings(algorithm: str) -> set[str]:
    """Return which settings of a run set fields of a shipped rule.

    A field that has the name of a setting, but another default, is set only behind the rule's name.
    """
    from tacit.runs.config import RunConfig

    settings, own = RunConfig.model_fields, fields_of_rule(algorithm)
    return {key for key in OF_RULES if key in own and own[key].default == settings[key].default} | {
        "step",
        "codec",
    } & set(own)


def need_tensorboard(named: str) -> None:
    """Refuse a setting that needs TensorBoard where that is not installed."""
    if find_spec("tensorboard") is None:
        raise InvalidInput(f"{named}: TensorBoard is not installed; install tacit[tensorboard], or leave this out")


def idle_without_masks(key: str, named: Names) -> str:
    """Say that a setting means nothing without masks."""
    return f"{named[key]} means nothing without {named['cancelling']}; leave it out, or set that"


def check_together(config: "RunConfig", named: Names, options: Collection[str] = ()) -> None:
    """Refuse settings that contradict each other. `options` are those given on a command line, maybe with their default."""
    _check_privacy(config, named)
    idle = _idle(config.algorithm)
    if not all(_is_default(config, key) for key in (*OF_RULES, "step", "codec", "momentum")):
        idle = idle | _idle_fields(config.algorithm)
    for key in sorted(idle):
        if key in ("step", "codec") and not is_user_code(config.algorithm):
            continue  # refused where the rule is made
        if key == "noise" and config.noise == "discrete":
            continue  # it is about records, not about links
        if not _is_default(config, key):
            raise InvalidInput(f"{named[key]} means nothing to {config.algorithm}; leave it out")
    if config.is_robust:
        for key, why in (
            ("noise", "masks cancel only in a weighted mean of all agents"),
            ("gossip_rounds", "they mix by weights"),
            ("exchanges_per_query", "a robust mean takes one exchange"),
        ):
            if not _is_default(config, key) and not (key == "noise" and config.noise == "discrete"):
                raise InvalidInput(
                    f"{named[key]} does not go with {named['mixing']} {config.mixing}: {why}; leave one of them out"
                )
    if config.noise != "cancelling":
        for key in OF_MASKS:
            if key in options or not _is_default(config, key):
                raise InvalidInput(idle_without_masks(key, named))
    if config.noise != "discrete" and not _is_default(config, "rounding_bits"):
        raise InvalidInput(
            f"{named['rounding_bits']} means nothing without {named['discrete']}; leave it out, or set that"
        )
    if not _is_default(config, "momentum") and config.step != "momentum":
        raise InvalidInput("momentum means nothing without step momentum; leave it out, or set the step")
    if config.workers is None:
        for key in OF_WORKERS:
            if not _is_default(config, key):
                raise InvalidInput(f"{named[key]} means nothing without {named['workers']}; leave it out, or set that")
    elif config.private_diagnostics and config.workers > 1:
        raise InvalidInput(
            f"{named['private_diagnostics']} are collected in one process only; leave them out, or leave out {named['workers']}"
        )
    if not (is_user_code(config.dataset) and not config.dataset.strip().startswith("synthetic:")):
        check_numbers_of_agents(config, named)  # the user's own records may determine how many agents there are
    if config.tensorboard:
        need_tensorboard(named["tensorboard"])


def _check_names(config: "RunConfig") -> None:
    """Refuse misspelt names of what is shipped, which are otherwise refused where it is loaded."""
    kinds = {
        "dataset": (*DATA_SETS, "synthetic"),
        "model": MODELS,
        "loss": LOSSES,
        "graph": (*GRAPHS, *SCHEDULES, "random"),
    }
    for key, known in kinds.items():
        name = getattr(config, key).strip().partition(":")[0]
        if not (is_user_code(getattr(config, key)) or "." in name or os.sep in name or os.path.exists(name)):
            choose(key, name.replace("-", "_") if key == "graph" else name, known)


def _check_privacy(config: "RunConfig", named: Names) -> None:
    given = (config.epsilon is not None) + (config.noise_multiplier is not None)
    if config.private and given != 1:
        _check_names(config)
        raise InvalidInput(
            f"say how much privacy to give: either {named['epsilon']} or {named['noise_multiplier']}, but not both; or "
            f"{named['no_private']} for no privacy"
        )
    if config.private:
        _check_noise(config, named)
        return
    if given:
        raise InvalidInput(
            f"{named['no_private']} guarantees nothing, so {named['epsilon']} and {named['noise_multiplier']} mean "
            "nothing; leave one or the other out"
        )
    if config.unit is not None:
        raise InvalidInput(f"{named['unit']} says who is protected, but without privacy nobody is; leave it out")
    if config.bands != 1:
        raise InvalidInput(f"{named['bands']} correlates noise, but a run without privacy adds none; leave it out")
    if config.private_diagnostics:
        raise InvalidInput(f"{named['private_diagnostics']} describe clipping, but a run without privacy does not clip")
    if config.noise != "local":
        raise InvalidInput(f"{named[config.noise]} needs privacy, but this run has none; leave it out")


def _check_noise(config: "RunConfig", named: Names) -> None:
    """Refuse noise of which no ε is known in these terms."""
    if config.adjacency == "replace_one" and config.bands != 1:
        raise InvalidInput(
            f"{named['bands']} divides records into groups, and a record that replaces another may be in another group; use "
            f"{named['add_remove']}, or leave {named['bands']} out"
        )
    if config.adjacency == "replace_one" and config.noise == "discrete":
        raise InvalidInput(
            f"discrete noise has a bound by Rényi divergences alone, and under replace-one adjacency it has none; use {named['add_remove']}"
        )
    if config.bands == "auto" and config.epsilon is None:
        raise InvalidInput(
            f"{named['bands']} auto compares noise at one ε; give {named['epsilon']} instead of {named['noise_multiplier']}, or a number of bands"
        )


def check_numbers_of_agents(config: "RunConfig", named: Names) -> None:
    """Refuse lists without one value for each agent, masks that too few honest agents share, and absences of agents that do not exist."""
    agents = 1 if config.is_pooled else config.agents
    if config.workers is not None and config.workers > agents:
        raise InvalidInput(
            f"{named['workers']} is {config.workers}, but {'there is one agent' if agents == 1 else f'there are {agents} agents'}: each worker "
            f"hosts at least one, so use at most {agents}"
        )
    for key in PER_AGENT:
        value = getattr(config, key)
        if isinstance(value, list) and len(value) != agents:
            raise InvalidInput(
                f"{named[key]} has {len(value)} values, but {f'{config.algorithm} trains one agent' if agents == 1 else f'there are {agents} agents'}; "
                "give one for each, or one for all"
            )
    if config.noise == "cancelling" and config.curious + config.lost > agents - 2:
        raise InvalidInput(
            f"{named['curious']} is {config.curious} and {named['lost']} is {config.lost}: of {agents} agents, fewer than two are then "
            "left to share masks with each other; lower one of them"
        )
    for absence in config.absences:
        if absence.agent >= agents:
            raise InvalidInput(
                f"absences: agent {absence.agent} is to be away, but agents are numbered from 0 to {agents - 1}"
            )
        if absence.first >= config.total_rounds:
            raise InvalidInput(
                f"absences: agent {absence.agent} is away from round {absence.first} on, but the run ends after {config.total_rounds} rounds"
            )
    left_out = {absence.agent for absence in config.absences if absence.rekey is not None}
    if left_out and config.noise != "cancelling":
        raise InvalidInput(
            f"absences: rekey shares masks without an agent, but there are no masks without {named['cancelling']}"
        )
    if len(left_out) > config.lost:
        raise InvalidInput(
            f"absences: masks are to be shared without {len(left_out)} agents, but {named['lost']} is {config.lost}; set it to "
            f"{len(left_out)}, so that the noise covers that"
        )


def _is_default(config: "RunConfig", key: str) -> bool:
    field = type(config).model_fields[key]
    return bool(getattr(config, key) == field.get_default(call_default_factory=True))
