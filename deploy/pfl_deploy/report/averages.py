"""Reduces the accuracies of many sites and rounds to one number, in each way that papers do."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Literal, TypeAlias

from pydantic.dataclasses import dataclass

from pfl_common.app.config import STRICT, settle
from pfl_common.spec.run import ClientId

Average: TypeAlias = Literal["macro", "micro"]
BestMode: TypeAlias = Literal["common_round", "per_client"]


@dataclass(frozen=True, config=STRICT)
class Reading:
    """The way a run's accuracies are averaged; it changes nothing in the training."""

    acc_average: Average = "macro"
    """macro: the mean over sites, each alike. micro: over all test samples together, as FedCP and GPFL print it."""
    best_mode: BestMode = "common_round"
    """common_round: the round with the highest average. per_client: each site at its own best round, then the average,
    as DualFed's code has it.
    """

    @classmethod
    def of(cls, acc_average: str | None, best_mode: str | None) -> Reading:
        """From a command's words."""
        given = {"acc_average": acc_average, "best_mode": best_mode}
        return settle(cls, {name: word for name, word in given.items() if word is not None}, what="pfl-")

    @property
    def is_pooled(self) -> bool:
        """Whether a site counts by its test samples."""
        return self.acc_average == "micro"

    @property
    def words(self) -> str:
        """The meaning of the average, as a sentence."""
        return "over all test samples together" if self.is_pooled else "on average over sites"


def average(values: Mapping[ClientId, float], samples: Mapping[ClientId, float], how: Average) -> float:
    """One number of many sites; pooled, a site counts by its test samples."""
    if how == "macro":
        return statistics.fmean(values.values())
    return statistics.fmean(values.values(), weights=[samples[site] for site in values])


def best_of_each(
    curves: Mapping[ClientId, Mapping[int, float]], samples: Mapping[ClientId, float], how: Average
) -> float:
    """Each site at the best of its own rounds."""
    return average({site: max(curve.values()) for site, curve in curves.items()}, samples, how)


def deviation(values: Mapping[ClientId, float]) -> float:
    """Over these very sites, which are no sample of others."""
    return statistics.pstdev(values.values())
