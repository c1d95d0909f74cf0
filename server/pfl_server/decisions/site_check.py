"""Decides from the sites' descriptions of their data which of them a run can begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low

from pfl_common.errors import Refused, nearest
from pfl_common.spec.run import ClientId, Description
from pfl_common.spec.sample_form import Form
from pfl_server.decisions.class_names import LONGEST_NAME, remark, tell_alone
from pfl_server.decisions.model_choice import odd_ones, tell_form
from pfl_server.decisions.pinned_form import check_form
from pfl_server.decisions.pinned_form import tell_form as tell_pin
from pfl_server.decisions.table_choice import find_hindrance
from pfl_server.decisions.text_choice import check_numbering, tell_hindrance

MOST_TOLD = 6
MOST_SEARCHED = 500
MOST_CLASSES_ALONE = 1000
"""Classes that one site may name beside sites with far fewer: each costs everybody's network a row."""
FAR_FEWER = 10


@dataclass(frozen=True)
class Verdict:
    """The outcome of the check: sites that fit, sites to send away, and reasons not to begin."""

    fitting: tuple[ClientId, ...] = ()
    odd: Mapping[ClientId, str] = field(default_factory=dict)
    """Sites that are sent away, and why: the others can go on without them."""
    hindrance: str = ""
    """Why no run can begin with the sites that are left, in words for the operator and for each of them."""
    remarks: tuple[str, ...] = ()


def judge(
    sites: Mapping[ClientId, Description],
    *,
    wanted: int,
    classes: Sequence[str] = (),
    words: Sequence[str] = (),
    fewest_sites: int = 1,
) -> Verdict:
    """Decide once as many as are wanted have come: more than half of them say what data the run is about. With as many
    of one kind as of another nobody is sent away, for nobody but people knows who is wrong.
    """
    odd = odd_ones(sites)
    if odd and 2 * len(odd) >= len(sites):
        return Verdict(hindrance=_tell_split(sites))
    if not classes:
        odd |= _of_many_classes({site: one for site, one in sites.items() if site not in odd})
    fitting = tuple(site for site in sorted(sites) if site not in odd)
    here = {site: sites[site] for site in fitting}
    terms = _Terms(classes, words, fewest_sites)
    hindrance = terms.hinder(here) if len(fitting) >= wanted else ""
    if hindrance and (alone := _find_culprit(here, terms)):
        odd, fitting = (
            odd | {alone: f"{alone}: {hindrance}"},
            tuple(site for site in fitting if site != alone),
        )
        hindrance = ""
    named = {site: sites[site].classes for site in fitting}
    return Verdict(fitting, odd, hindrance, remark(named, fixed=bool(classes)))


@dataclass(frozen=True)
class _Terms:
    """The operator's lists, by which sites go together."""

    classes: Sequence[str]
    words: Sequence[str]
    fewest_sites: int

    def hinder(self, here: Mapping[ClientId, Description]) -> str:
        """Why no run can begin with these sites; else nothing."""
        alone = "" if self.classes else tell_alone({site: one.classes for site, one in here.items()})
        return (
            alone
            or tell_hindrance(here, self.words, self.fewest_sites)
            or find_hindrance(here, fewest_sites=self.fewest_sites)
        )


def _find_culprit(here: Mapping[ClientId, Description], terms: _Terms) -> ClientId | None:
    """The one site without which the others, two or more, could begin. One that keeps its words to itself is none: the
    operator can name a list.
    """
    if len(here) < 3:
        return None
    said = {site: one for site, one in here.items() if one.numbering != "withheld"}
    loudest = max(sorted(said), key=lambda site: len(said[site].words) + len(said[site].table), default=None)
    others = {site: one for site, one in here.items() if site != loudest}
    return loudest if loudest is not None and not terms.hinder(others) else None


def _of_many_classes(sites: Mapping[ClientId, Description]) -> dict[ClientId, str]:
    """Sites that name very many classes beside others that name far fewer."""
    usual = median_low(len(one.classes) for one in sites.values()) if len(sites) > 2 else 0
    most = max(MOST_CLASSES_ALONE, FAR_FEWER * usual)
    return {
        site: f"{site} names {len(one.classes)} classes; expected: about {usual}, as most sites do; what to do: check "
        "--data, or ask the operator to name the classes with --classes"
        for site, one in sorted(sites.items())
        if usual and len(one.classes) > most
    }


def check_site(
    site: ClientId,
    description: Description,
    *,
    classes: Sequence[str],
    words: Sequence[str],
    form: Form | None = None,
) -> None:
    """Refuse a site that cannot take part by what the operator listed."""
    check_form(site, description, form or Form())
    check_classes(site, description, classes)
    check_numbering(site, description, words)


def check_classes(site: ClientId, description: Description, classes: Sequence[str]) -> None:
    """Refuse a site with a class that the operator's list does not have; without a list every name is welcome."""
    known = frozenset(classes)
    unknown = [name for name in description.classes if name not in known]
    if classes and unknown:
        # To look for the nearest of very many would hold up everybody's calls.
        most = len(classes) > MOST_SEARCHED
        expected = (
            f"some of its {len(classes)}" if most else nearest(unknown[0][:LONGEST_NAME], classes)[:600]
        )
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        named = ", ".join(repr(name[:LONGEST_NAME]) for name in unknown[:5])
        raise Refused(
            "classes",
            f"{site} has classes that --classes does not name: {named}{more}; expected: {expected}; what to do: "
            "rename them in the data folder and start this site "
            "again, or ask the operator to name them",
        )


def _tell_split(sites: Mapping[ClientId, Description]) -> str:
    forms: dict[str, list[ClientId]] = {}
    for site, description in sorted(sites.items()):
        forms.setdefault(tell_form(description), []).append(site)
    told = "; ".join(f"{_name(owners)}: {form}" for form, owners in list(forms.items())[:MOST_TOLD])
    pins = {tell_pin(one): site for site, one in sorted(sites.items(), reverse=True)}
    either = " or ".join(f"--shape {form} (as {site})" for form, site in sorted(pins.items())[:MOST_TOLD])
    return (
        f"the sites' data do not go together, and no more than half of them agree ({told}); expected: one kind of data "
        "at more than half of the sites; what to do: mend --data, or data.json in it, at the sites that are wrong and "
        "start those again; this coordinator goes on waiting; or its operator says what the run is about, and sites of "
        f"another form are refused: {either}"
    )


def _name(sites: Sequence[ClientId]) -> str:
    more = len(sites) - MOST_TOLD
    return ", ".join(sites[:MOST_TOLD]) + (f" and {more} more" if more > 0 else "")
