"""No setting is parsed and ignored: each value of each switch changes something that a user sees.

Seen are the coordinator's states, the vaults, what crosses, what sites predict, what they and the coordinator tell.
A new method's settings are found and tried without a line here; a setting that works only beside another has a line in
`BESIDE`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Literal, get_args, get_origin

import numpy as np
import pytest
from pydantic.fields import FieldInfo

from pfl_common.app.config import dump, field_of, is_number
from pfl_common.errors import SettingError
from pfl_common.methods import Method
from pfl_common.spec.run import Json

from .cases import FOUND, WATCHED, Case
from .federation import BASE, Federation, History

BESIDE: Mapping[str, Mapping[str, Json]] = {
    # Batches of four leave last ones of 1, 3 and 2 samples.
    "*.tail": {"batch": 4},
    # Without what is held out batches of four leave 2 or 3, which are batches of their own either way.
    "fedfomo.tail": {"batch": 3},
    "*.drop_last": {"batch": 4},
    "fedcp.use_global_head": {"use_cpn": False},
    "spherefed.scale": {"loss": "ce"},
    "spherefed.gamma": {"calibrate": True},
    "fedphp.reg": {"variant": "original"},
    "fedphp.rho": {"variant": "original"},
    "fedphp.temperature": {"variant": "original"},
}
"""What has to be set for a switch to matter, by `method.setting` or, for all methods, `*.setting`."""

VALUES: Mapping[str, Json] = {"*.batch": 4, "fedcp.mmd_bandwidths": [1.0, 2.0]}
"""Another value of a number, where twice and half the default show nothing or cannot be."""

ELSEWHERE: Mapping[str, str] = {
    "dualfed.paper_accounting": "it changes what reports charge: tests/deploy/report/scenarios/test_report_method.py",
    "fedetf.projection": "it needs a backbone with a projector: tests/common/methods/test_fedetf.py",
    "fedetf.scale_init": "here every parameter has a first value of its own: tests/common/methods/test_fedetf.py",
    "fedcac.overlap_norm": "here all masks mark as many entries: tests/common/methods/test_fedcac.py",
}
"""Settings whose effect this schedule cannot show, and where it is shown."""


BEGINNING = 2
"""Attempts of the schedule that are played first."""


def find_values() -> Iterator[tuple[str, str, Json]]:
    """Each method, each of its settings, each value beside the default."""
    for case in FOUND:
        method = Method.of(case.module())
        settled = dump(method.settle({**BASE, **case.settings}))
        for field in fields(method.config):
            name = field.name.removesuffix("_")
            if f"{case.name}.{name}" in ELSEWHERE:
                continue
            for value in other_values(method, field.name, settled[name]):
                yield case.name, name, value


def other_values(method: Method, field: str, now: Json) -> list[Json]:
    """What else a setting can be: every other word of a choice, the other truth, another number."""
    found, name = field_of(method.config, field), field.removesuffix("_")
    if found is None:
        return []
    if (given := VALUES.get(f"{method.name}.{name}", VALUES.get(f"*.{name}"))) is not None:
        return [given]
    if get_origin(found.annotation) is Literal:
        return [word for word in get_args(found.annotation) if word != now]
    if found.annotation is bool:
        return [not now]
    if isinstance(now, list):
        return turned_round(now)
    if is_fixed(found):
        return []
    return [another_number(method, name, now)] if is_number(found) or now is None else []


def is_fixed(found: FieldInfo) -> bool:
    """Whether a number has been narrowed to the one value that makes sense in its method."""
    bounds = [getattr(m, name) for m in found.metadata for name in ("ge", "le") if hasattr(m, name)]
    return len(bounds) == 2 and bounds[0] == bounds[1]


def turned_round(now: list[Json]) -> list[Json]:
    """A list of truths with one of them the other way; other lists have a line in `VALUES`."""
    truths = all(isinstance(value, bool) for value in now)
    return [[*now[:place], not now[place], *now[place + 1 :]] for place in range(len(now))] if truths else []


def another_number(method: Method, name: str, now: Json) -> Json:
    """Twice a number, or else half of it, or one more: the first that the setting's bounds allow."""
    base = float(now) if isinstance(now, int | float) else 0.0
    for value in (2 * base, base / 2, base + 1):
        number: Json = int(value) if isinstance(now, int) else value
        if number != now and allowed(method, {**beside(method.name, name), name: number}):
            return number
    raise AssertionError(f"{method.name}.{name}: no other number found; add a line to VALUES")


def beside(name: str, setting: str) -> Mapping[str, Json]:
    """What has to be set too, so that a setting of a method matters."""
    return BESIDE.get(f"{name}.{setting}", BESIDE.get(f"*.{setting}", {}))


def allowed(method: Method, settings: Mapping[str, Json]) -> bool:
    """Whether these settings are taken."""
    try:
        method.settle(settings)
    except SettingError:
        return False
    return True


@pytest.mark.parametrize(("name", "setting", "value"), list(find_values()), ids=str)
def test_each_value_of_each_setting_shows(name: str, setting: str, value: Json) -> None:
    """Beside a run that differs in this setting alone, something seen is different, most often from the start."""
    case = next(case for case in FOUND if case.name == name)
    besides = beside(name, setting)
    plain, changed = ({**besides}, {**besides, setting: as_key(value)})
    assert differ(begun(case, plain), begun(case, changed)) or differ(
        whole(case, plain), whole(case, changed)
    ), f"{name}: {setting} = {value} changes nothing"


def as_key(value: Json) -> Json:
    """Lists cannot be kept in a cache's key."""
    return (
        ",".join("1" if v is True else "0" if v is False else str(v) for v in value)
        if isinstance(value, list)
        else value
    )


def begun(case: Case, settings: Mapping[str, Json]) -> dict[str, np.ndarray]:
    """What is seen of the first two rounds with other settings; quick, and enough for most."""
    return play_with(case, tuple(sorted(settings.items())), BEGINNING)


def whole(case: Case, settings: Mapping[str, Json]) -> dict[str, np.ndarray]:
    """What is seen of the whole schedule with other settings."""
    return play_with(case, tuple(sorted(settings.items())))


@cache
def play_with(case: Case, settings: tuple[tuple[str, Json], ...], plays: int = 0) -> dict[str, np.ndarray]:
    """The schedule, or its first attempts, with other settings."""
    federation = Federation(case.module(), {**case.settings, **dict(settings)}, WATCHED)
    return seen(federation.begin(plays) if plays else federation.run())


def seen(history: History) -> dict[str, np.ndarray]:
    """Everything a user could look at, by name."""
    found: dict[str, np.ndarray] = {
        f"sent {key} {entry.name}": np.array(entry.shape)
        for key, entries in history.manifests.items()
        for entry in entries
    }
    for number, state in history.states.items():
        found |= {f"state {number} {name}": value.double().numpy() for name, value in state.items()}
        for site, kept in history.vaults[number].items():
            found |= {f"vault {number} {site} {name}": v.double().numpy() for name, v in kept.items()}
    for number, measured in history.measured.items():
        found |= {f"scores {number} {site}": m.scores.double().numpy() for site, m in measured.items()}
    for number, told in history.told.items():
        found |= {f"told {number} {name}": np.array(value) for name, value in told.items()}
    for site, model in history.serving.items():
        found |= {f"serving {site} {name}": value.double().numpy() for name, value in model.items()}
    for place, (_, trained) in enumerate(history.trained):
        for site, one in trained.items():
            found |= {f"site {place} {site} {name}": np.array(values) for name, values in one.told.items()}
            found |= {f"up {place} {site} {name}": v.double().numpy() for name, v in one.up_state().items()}
    return found


def differ(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    """Whether two runs differ by more than rounding."""
    if one.keys() != other.keys() or any(one[name].shape != other[name].shape for name in one):
        return True
    return not all(np.allclose(one[name], other[name], rtol=1e-7, atol=1e-10, equal_nan=True) for name in one)


def test_two_equal_runs_do_not_differ() -> None:
    """The comparison itself: the same run played twice shows nothing new."""
    case = FOUND[0]
    same = {"lr": case.settings.get("lr", BASE["lr"])}
    assert not differ(whole(case, {}), whole(case, same))
    assert not differ(begun(case, {}), begun(case, same))
