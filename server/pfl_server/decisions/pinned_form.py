"""Holds sites to the form of samples that the operator has said; a site with another one is refused alone."""

from __future__ import annotations

from pfl_common.errors import Refused
from pfl_common.spec.data_description import alike
from pfl_common.spec.run import ClientId, Description
from pfl_common.spec.sample_form import Form


def check_form(site: ClientId, description: Description, form: Form) -> None:
    """Refuse a site whose samples are of another kind or shape. Pictures of any size go together, and texts of any
    length: they are brought to the run's.
    """
    own = description.kind
    fits = form.kind is None or alike(own) == alike(form.kind)
    if own == "image":
        pinned = not form.shape or (len(form.shape) == 3 and form.shape[0] in (1, 3))
    else:
        pinned = not form.shape or own == "tokens" or description.shape == form.shape
    if not (fits and pinned):
        raise Refused(
            "shape",
            f"{site} has samples of the form {tell_form(description)}; expected: {form}, as --shape says; what "
            "to do: check --data, or ask the operator to leave --shape out",
        )


def tell_form(description: Description) -> str:
    """A site's form as the operator would pin it."""
    loose = description.kind in ("image", "tokens") or bool(description.table)
    return description.kind if loose else str(Form(description.kind, description.shape))
