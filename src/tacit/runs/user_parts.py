"""What a model, loss, rule, data set or graph of a user's own may be, and how each is made from what a name stands for."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tacit.errors import InvalidInput, TacitError
from tacit.io.tracebacks import failure
from tacit.runs.user_code import UserCode

if TYPE_CHECKING:
    import networkx as nx
    from torch import nn

    from tacit.algorithms import Algorithm
    from tacit.data import AgentData, DataSet
    from tacit.models import Loss
    from tacit.networks import Topology


def make_user_part(key: str, own: UserCode, data: Any, seed: int) -> Any:
    """Return the object that a name stands for, as `tacit.train` takes it; some are made for the data of a run."""
    from tacit.data import AgentData

    if key == "data":
        return as_data(own)

    def divided() -> AgentData:
        if not isinstance(data, AgentData):
            raise InvalidInput(f"{key} {own.text} depends on the data of the run, which is not given; give data=")
        return data

    if key == "graph":
        return as_links(own, divided().agents, seed)
    if key == "model":
        return as_model(
            own, lambda: {"input_shape": divided().dataset.input_shape, "classes": divided().dataset.classes}
        )
    return as_rule(own) if key == "algorithm" else as_loss(own)


def as_model(own: UserCode, facts: Callable[[], dict[str, Any]]) -> "Callable[[], nn.Module]":
    """Return what makes the model. `facts` are what it may ask for by the names of its parameters: `input_shape`, `classes`."""
    from torch import nn

    about, value = f"model {own.text}", own.value
    if isinstance(value, nn.Module):
        raise InvalidInput(
            f"{about} is a module that is made again whenever its file is run, with different parameters each time; name its class, or "
            "a function that makes it"
        )
    if not callable(value):
        raise InvalidInput(f"{about} is {_kind(value)}; name an nn.Module class or a function that makes one")
    wanted = _asked(about, value, ("input_shape", "classes"))
    given = {name: fact for name, fact in facts().items() if name in wanted} if wanted else {}

    def make() -> nn.Module:
        module = _call(about, value, given)
        if not isinstance(module, nn.Module):
            raise InvalidInput(f"{about} made {_kind(module)}; it must make an nn.Module")
        return module

    return make


def as_loss(own: UserCode) -> "Loss":
    """Return the loss: a function of outputs and targets, or an object that is called like one."""
    about, value = f"loss {own.text}", own.value
    if inspect.isclass(value):
        raise InvalidInput(f"{about} is a class; name a function of outputs and targets, or an object of this class")
    if not callable(value):
        raise InvalidInput(f"{about} is {_kind(value)}; name a function of outputs and targets")
    loss: Loss = value
    return loss


def as_rule(own: UserCode) -> "Algorithm[Any]":
    """Return the update rule: an object, or one made of a class whose settings all have defaults."""
    about, value = f"algorithm {own.text}", own.value
    if not (hasattr(value, "init") and hasattr(value, "round")):
        raise InvalidInput(f"{about} is {_kind(value)}; name a rule, an object or class with init and round")
    if inspect.isclass(value):
        _asked(about, value, (), advice="; give it a default, or name an object of this class")
        value = _call(about, value, {})
    rule: Algorithm[Any] = value
    return rule


def as_data(own: UserCode) -> "DataSet | AgentData":
    """Return the data: an object, or what a function without parameters returns."""
    from tacit.data import AgentData, DataSet

    about, value = f"dataset {own.text}", own.value
    if not isinstance(value, DataSet | AgentData):
        if not callable(value):
            raise InvalidInput(
                f"{about} is {_kind(value)}; name a DataSet, an AgentData, or a function that returns one"
            )
        _asked(about, value, ())
        value = _call(about, value, {})
    if not isinstance(value, DataSet | AgentData):
        raise InvalidInput(f"{about} returned {_kind(value)}; it must return a DataSet or an AgentData")
    return value


def as_links(own: UserCode, agents: int, seed: int) -> "nx.Graph | Topology":
    """Return who talks to whom: a graph or topology, or what a function of the number of agents returns."""
    import networkx as nx

    from tacit.networks.topology import is_topology

    about, value = f"graph {own.text}", own.value
    if not isinstance(value, nx.Graph) and not is_topology(value):
        if not callable(value):
            raise InvalidInput(
                f"{about} is {_kind(value)}; name a graph, a topology, or a function of the number of agents that returns one"
            )
        wanted = _asked(about, value, ("seed",), free=1)
        value = _call(about, value, {"seed": seed} if wanted else {}, agents)
    if not isinstance(value, nx.Graph) and not is_topology(value):
        raise InvalidInput(f"{about} returned {_kind(value)}; it must return a networkx graph or a topology")
    links: nx.Graph | Topology = value
    return links


def _kind(value: Any) -> str:
    if inspect.ismodule(value):
        return f"the module {value.__name__}"
    if inspect.isclass(value):
        return f"the class {value.__name__}"
    return "nothing (None)" if value is None else f"a {type(value).__name__}"


def _parameters(value: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):  # written in C, without a signature
        return []


def _asked(about: str, value: Any, known: tuple[str, ...], *, free: int = 0, advice: str = "") -> set[str]:
    """Return which of the known facts something asks for by name; one that needs anything else is refused.

    free: how many parameters, the first ones, are given whatever they are called.
    """
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = [each for each in _parameters(value) if each.kind not in stars][free:]
    needed = [each.name for each in found if each.name not in known and each.default is inspect.Parameter.empty]
    if needed:
        may = f"; it may ask for {' and '.join(known)}" if known else ""
        raise InvalidInput(f"{about} needs {', '.join(needed)}, which is not provided{may}{advice}")
    return {each.name for each in found if each.name in known and each.kind is not inspect.Parameter.POSITIONAL_ONLY}


def _call(about: str, value: Any, named: dict[str, Any], *given: Any) -> Any:
    """Call the user's code; whatever it raises becomes an error that says where."""
    try:
        return value(*given, **named)
    except TacitError as error:
        raise InvalidInput(f"{about}: {error}") from error
    except (Exception, SystemExit) as error:
        raise InvalidInput(f"{about} failed: {failure(error)}") from error
