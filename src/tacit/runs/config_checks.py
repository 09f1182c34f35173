"""Which settings of a run make sense together, and how an error names them: as keys of a file, or as options of a command line."""

from collections.abc import Collection, Mapping
from dataclasses import Field, fields
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tacit.errors import InvalidInput
from tacit.registry import RULES, rule_line
from tacit.runs.user_code import is_user_code

if TYPE_CHECKING:
    from tacit.runs.config import RunConfig

PER_AGENT = ("epsilon", "noise_multiplier", "clip", "lot_size")
"""Settings that may have one value for each agent."""
OF_MASKS = ("curious", "keys", "mask_ratio", "lost")
"""Settings that mean something only where noise cancels."""
OF_RULES = ("carry", "inner_steps", "rho", "rho_growth")
"""Settings for fields of a rule, besides its step."""
_OF_LINKS = {"graph", "mixing", "allow_drift", "noise", *OF_MASKS, "gossip_rounds", "exchanges_per_query", "absences"}


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
KEYS: Names = _FileNames(no_private="private = false", cancelling='noise = "cancelling"')
OPTIONS: Names = _OptionNames(no_private="--no-private", cancelling="--noise cancelling")


def displaced(options: Mapping[str, Any]) -> Collection[str]:
    """Return the settings of a file that cannot stand beside these options."""
    found: set[str] = set()
    if options.get("epsilon") is not None:
        found |= {"noise_multiplier", "private"}
    if options.get("noise_multiplier") is not None:
        found |= {"epsilon", "private"}
    if options.get("private") is False:
        found |= {"epsilon", "noise_multiplier", "private_diagnostics", "unit", "noise", *OF_MASKS}
    if options.get("noise") == "local":
        found |= set(OF_MASKS)
    if options.get("algorithm") is not None:
        algorithm = str(options["algorithm"])
        found |= _idle(algorithm) | _idle_fields(algorithm)
    return found


def _idle(algorithm: str) -> set[str]:
    """Return the settings of links that mean nothing to an algorithm."""
    line = rule_line(algorithm)
    if line is not None and not line.exchanges:
        return _OF_LINKS
    return set() if line is None or line.mixes else {"exchanges_per_query"}


def _idle_fields(algorithm: str) -> set[str]:
    """Return the settings of rules that mean nothing to an algorithm. To know its fields, it is imported."""
    idle = {*OF_RULES, "step", "momentum"}
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
    return {key for key in OF_RULES if key in own and own[key].default == settings[key].default} | {"step"} & set(own)


def need_tensorboard(named: str) -> None:
    """Refuse a setting that needs TensorBoard where that is not installed."""
    if find_spec("tensorboard") is None:
        raise InvalidInput(f"{named}: TensorBoard is not installed; install tacit[tensorboard], or leave this out")


def check_together(config: "RunConfig", named: Names) -> None:
    """Refuse settings that contradict each other."""
    _check_privacy(config, named)
    idle = _idle(config.algorithm)
    if not all(_is_default(config, key) for key in (*OF_RULES, "step", "momentum")):
        idle = idle | _idle_fields(config.algorithm)
    for key in sorted(idle):
        if key == "step" and not is_user_code(config.algorithm):
            continue  # refused where the rule is made
        if not _is_default(config, key):
            raise InvalidInput(f"{named[key]} means nothing to {config.algorithm}; leave it out")
    if config.noise == "local":
        for key in OF_MASKS:
            if not _is_default(config, key):
                raise InvalidInput(
                    f"{named[key]} means nothing without {named['cancelling']}; leave it out, or set that"
                )
    if not _is_default(config, "momentum") and config.step != "momentum":
        raise InvalidInput("momentum means nothing without step momentum; leave it out, or set the step")
    if not (is_user_code(config.dataset) and not config.dataset.strip().startswith("synthetic:")):
        check_numbers_of_agents(config, named)  # the user's own records may determine how many agents there are
    if config.tensorboard:
        need_tensorboard(named["tensorboard"])


def _check_privacy(config: "RunConfig", named: Names) -> None:
    given = (config.epsilon is not None) + (config.noise_multiplier is not None)
    if config.private and given != 1:
        raise InvalidInput(
            f"say what to promise: either {named['epsilon']} or {named['noise_multiplier']}, and not both; or "
            f"{named['no_private']} for no privacy"
        )
    if config.private:
        return
    if given:
        raise InvalidInput(
            f"{named['no_private']} promises nothing, so {named['epsilon']} and {named['noise_multiplier']} mean "
            "nothing; leave one or the other out"
        )
    if config.unit is not None:
        raise InvalidInput(f"{named['unit']} says who is protected, and without privacy nobody is; leave it out")
    if config.private_diagnostics:
        raise InvalidInput(f"{named['private_diagnostics']} describe clipping, and a run without privacy does not clip")
    if config.noise != "local":
        raise InvalidInput(
            f"{named['cancelling']} needs privacy, and a run without privacy adds no noise; leave it out"
        )


def check_numbers_of_agents(config: "RunConfig", named: Names) -> None:
    """Refuse lists without one value for each agent, masks that nobody honest shares, and absences of agents that do not exist."""
    agents = 1 if config.is_pooled else config.agents
    for key in PER_AGENT:
        value = getattr(config, key)
        if isinstance(value, list) and len(value) != agents:
            raise InvalidInput(
                f"{named[key]} has {len(value)} values, and {f'{config.algorithm} trains one agent' if agents == 1 else f'there are {agents} agents'}; "
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
                f"absences: agents are numbered from 0 to {agents - 1}, and agent {absence.agent} is to be away"
            )
        if absence.first >= config.total_rounds:
            raise InvalidInput(
                f"absences: agent {absence.agent} is away from round {absence.first} on, and the run ends after {config.total_rounds} rounds"
            )
    left_out = {absence.agent for absence in config.absences if absence.rekey is not None}
    if left_out and config.noise == "local":
        raise InvalidInput(
            f"absences: rekey shares masks without an agent, and there are none without {named['cancelling']}"
        )
    if len(left_out) > config.lost:
        raise InvalidInput(
            f"absences: masks are to be shared without {len(left_out)} agents, and {named['lost']} is {config.lost}; set it to "
            f"{len(left_out)}, so that the noise covers that"
        )


def _is_default(config: "RunConfig", key: str) -> bool:
    field = type(config).model_fields[key]
    return bool(getattr(config, key) == field.get_default(call_default_factory=True))
