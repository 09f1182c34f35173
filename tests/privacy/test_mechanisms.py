"""A mechanism is data: it is read back as it was written, knows its events, and refuses what it does not know."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import PrivacyError
from tacit.privacy import Event, Guarantee, Mechanism, NoPrivacy, Privacy
from tacit.privacy.keys import Keys
from tacit.privacy.noise_kinds import Masked, Masks
from tacit.privacy.observers import EVERYBODY, Observer

SOME = Mechanism.gaussian(sample_rate=0.1, clip=1.5, lot=6.0, noise_multiplier=2.0)
POISSON = {"kind": "poisson", "rate": 0.1, "unit": "record", "most": 1}
positive = st.floats(1e-9, 1e9)


@given(st.floats(1e-12, 1.0), positive, positive, positive)
def test_what_is_written_is_read_back_to_the_bit(rate, clip, lot, sigma):
    mechanism = Mechanism.gaussian(sample_rate=rate, clip=clip, lot=lot, noise_multiplier=sigma)
    assert Mechanism.of_json(json.loads(json.dumps(mechanism.to_json(), allow_nan=False))) == mechanism


def test_without_noise_there_is_no_clip_and_no_event():
    plain = Mechanism.plain(sample_rate=0.5, lot=3)
    assert (plain.private, plain.clip, plain.noise_multiplier) == (False, math.inf, 0.0)
    assert plain.to_json()["clip"] is None
    assert Mechanism.of_json(plain.to_json()) == plain
    with pytest.raises(PrivacyError, match=r"noise_multiplier is 0\.0"):
        plain.event(3)


def test_it_knows_its_events_and_against_whom():
    assert SOME.event(7) == SOME.event(7, EVERYBODY) == Event(sample_rate=0.1, noise_multiplier=2.0, count=7)
    assert SOME.event(7, Observer(1)) == SOME.event(7), "noise of one's own protects from all others alike"


def test_masks_protect_the_less_the_more_agents_are_curious():
    masks = Masks(own=(0.5,) * 4, size=2.0, keys=Keys(4))
    mechanism = replace(SOME, clip=2.0, lot=4.0, noise=Masked(multiplier=1.0, agent=2, masks=masks))
    found = [
        mechanism.event(7, observer).noise_multiplier for observer in (Observer(0), Observer(1), Observer(2), EVERYBODY)
    ]
    expected = []
    for curious in range(4):
        honest = 4 - curious
        covariance = np.eye(honest) * (0.25 + 4.0 * honest) - 4.0
        expected.append(np.linalg.inv(covariance)[0, 0] ** -0.5 * 4 / 2)
    assert found == pytest.approx([*expected[:3], 1.0], rel=1e-8)
    assert all(value <= right for value, right in zip(found, expected, strict=True)), "rounded down"
    assert Masks.of_json(json.loads(json.dumps(masks.to_json()))) == masks
    assert Mechanism.of_json(json.loads(json.dumps(mechanism.to_json())), masks) == mechanism
    with pytest.raises(PrivacyError, match="without its masks"):
        Mechanism.of_json(mechanism.to_json())
    with pytest.raises(PrivacyError, match="its neighbours count on"):
        replace(mechanism, noise=Masked(multiplier=0.9, agent=2, masks=masks))
    with pytest.raises(PrivacyError, match="not among"):
        Masked(multiplier=1.0, agent=4, masks=masks)


def test_a_guarantee_names_its_observer():
    made = Guarantee(epsilon=1.0, delta=1e-5, adjacency="add_remove", accountant="pld", release=True)
    assert made.observer == EVERYBODY
    assert [str(Observer(curious)) for curious in (None, 1, 2)] == [
        "everybody else together",
        "any one other agent",
        "any 2 other agents together",
    ]


def test_a_plan_gives_every_agent_its_mechanism():
    terms = {"delta": 1e-5, "noise_multiplier": [1.0, 2.0], "clip": [0.5, 4.0], "lot_size": [5, 8]}
    plan = Privacy(**terms).plan([50, 16], queries=9)
    assert plan.mechanisms == (
        Mechanism.gaussian(sample_rate=0.1, clip=0.5, lot=5, noise_multiplier=1.0),
        Mechanism.gaussian(sample_rate=0.5, clip=4.0, lot=8, noise_multiplier=2.0),
    )
    assert plan.event(1) == plan.mechanism(1).event(9)
    assert NoPrivacy(lot_size=5).plan([50], 9).mechanisms == (Mechanism.plain(sample_rate=0.1, lot=5),)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sampler": POISSON | {"kind": "shuffled"}}, "a sampler of kind 'shuffled' is not known"),
        ({"noise": {"kind": "laplace", "multiplier": 1.0}}, "noise of kind 'laplace' is not known"),
        ({"noise": {"kind": "cancelling", "multiplier": 1.0}}, "noise has the fields kind, multiplier, agent"),
        ({"noise": {"kind": ["gaussian"], "multiplier": 1.0}}, "is not known"),
        ({"noise": {"kind": "gaussian"}}, "noise has the fields kind, multiplier"),
        ({"noise": {"kind": "none", "multiplier": 1.0}}, "noise has the fields kind"),
        ({"noise": None}, "noise of kind None"),
        ({"sampler": POISSON | {"seed": 3}}, "a sampler has the fields"),
        ({"sampler": POISSON | {"rate": 1.5}}, r"sample_rate is 1\.5"),
        ({"sampler": POISSON | {"rate": True}}, "rate of a mechanism is True"),
        ({"sampler": POISSON | {"unit": 7}}, "a sampler has a unit"),
        ({"sampler": POISSON | {"most": 2}}, "a lot cannot have 2 records"),
        ({"clip": None}, "where there is noise, finite"),
        ({"clip": 0.0}, r"clip is 0\.0"),
        ({"clip": math.nan}, "clip is nan"),
        ({"lot": math.inf}, "lot is inf"),
        ({"lot": "6"}, "lot of a mechanism is '6'"),
        ({"unit": "patient"}, "a mechanism has the fields"),
    ],
)
def test_what_is_not_known_is_refused(changes, said):
    with pytest.raises(PrivacyError, match=said):
        Mechanism.of_json(SOME.to_json() | changes)
