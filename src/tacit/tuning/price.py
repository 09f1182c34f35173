"""What a search costs. Every trial on private records is a run: a search costs the sum of all its runs.

Papernot & Steinke, *Hyperparameter Tuning with Renyi Differential Privacy*, ICLR 2022: where the number of trials is itself random, trials are
independent, and nobody sees anything of any trial but the best, it costs far less. `repeat_and_select` derives that.
"""

import dp_accounting
from dp_accounting.rdp import RdpAccountant

from tacit.errors import InvalidInput
from tacit.privacy import Event
from tacit.privacy.accounting import quiet_accountants

_ORDERS = [1 + number / 10 for number in range(1, 100)] + list(range(11, 65)) + [80, 96, 128, 192, 256, 512]


def repeat_and_select(event: Event, *, mean: float, delta: float) -> float:
    """Return ε of the best of a random number of trials, each of which makes these queries; under add-or-remove-one, by RDP.

    Where trials differ, `event` must dominate each of them (`Event.dominates`). It is one kind of query with Gaussian noise. The number of trials is geometric with this mean. Neither it nor anything of the other trials may be shown, and trials are scored on
    public records.
    """
    if not mean > 1:
        raise InvalidInput(f"mean is {mean}; there must be more than one trial on average")
    if event.discrete or event.otherwise:
        raise InvalidInput("the price of repeat-and-select is known here for one kind of query with Gaussian noise")
    once = dp_accounting.PoissonSampledDpEvent(event.sample_rate, dp_accounting.GaussianDpEvent(event.noise_multiplier))
    run = dp_accounting.SelfComposedDpEvent(once, event.count)
    accountant = RdpAccountant(_ORDERS)
    with quiet_accountants():
        accountant.compose(dp_accounting.dp_event.RepeatAndSelectDpEvent(run, mean, 1))
        return float(accountant.get_epsilon(delta))
