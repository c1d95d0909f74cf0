"""Decides from the sites' descriptions of their data which of them a run can begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pfl_common.errors import Refused, nearest
from pfl_common.spec.run import ClientId, Description
from pfl_server.decisions.class_names import LONGEST_NAME, remark, tell_alone
from pfl_server.decisions.model_choice import odd_ones, tell_form
from pfl_server.decisions.table_choice import find_hindrance
from pfl_server.decisions.text_choice import check_numbering, tell_hindrance

MOST_TOLD = 6
MOST_SEARCHED = 500


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
    fitting = tuple(site for site in sorted(sites) if site not in odd)
    named = {site: sites[site].classes for site in fitting}
    enough = len(fitting) >= wanted
    hindrance = tell_alone(named) if enough and not classes else ""
    if enough and not hindrance:
        here = {site: sites[site] for site in fitting}
        hindrance = tell_hindrance(here, words, fewest_sites) or find_hindrance(
            here, fewest_sites=fewest_sites
        )
    return Verdict(fitting, odd, hindrance, remark(named, fixed=bool(classes)))


def check_site(
    site: ClientId, description: Description, *, classes: Sequence[str], words: Sequence[str]
) -> None:
    """Refuse a site that cannot take part by what the operator listed."""
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
    return (
        f"the sites' data do not go together, and no more than half of them agree ({told}); expected: one kind of data "
        "at more than half of the sites; what to do: mend --data, or data.json in it, at the sites that are wrong and "
        "start those again; this coordinator goes on waiting"
    )


def _name(sites: Sequence[ClientId]) -> str:
    more = len(sites) - MOST_TOLD
    return ", ".join(sites[:MOST_TOLD]) + (f" and {more} more" if more > 0 else "")
