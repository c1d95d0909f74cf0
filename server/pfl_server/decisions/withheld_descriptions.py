"""What a site's policy withholds at joining, and what a run needs all the same.

Names of classes are needed where the operator lists none; heights and widths of pictures where none is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pfl_common.errors import Refused
from pfl_common.spec.hashed_names import is_hashed, recognise
from pfl_common.spec.run import ClientId, Description

NO_SIZE = (1, 1)
"""Height and width of pictures that a site keeps to itself."""


def hides_sizes(description: Description) -> bool:
    """Whether these are pictures of which the site does not tell how large they are."""
    return description.kind == "image" and not description.sizes and description.shape[-2:] == NO_SIZE


def resolve(
    site: ClientId, description: Description, *, classes: Sequence[str], image_size: bool
) -> Description:
    """A description with the run's names in place of their hashes; refused where a run cannot do without what is
    withheld. `classes` are the operator's or the run's, `image_size` says whether the size of its pictures is settled.
    """
    if hides_sizes(description) and not image_size:
        raise Refused(
            "shape",
            f"{site} does not tell how large its pictures are, and the run's size is agreed from that; what to do: "
            "ask the operator to name one (--image-size), or let the site's policy tell it: sizes = true",
        )
    hashed = any(map(is_hashed, description.classes))
    if not classes and (hashed or not description.classes):
        raise Refused(
            "classes",
            f"{site} does not tell the names of its classes, and the run's are agreed from them; what to do: ask the "
            'operator to list them (--classes), or let the site\'s policy tell them: class_names = "yes"',
        )
    if not hashed:
        return description
    known, unknown = recognise(description.classes, classes)
    if unknown:
        raise Refused(
            "classes",
            f"{unknown} of the {len(known)} classes that {site} tells as hashes are none of the run's; what to do: "
            "compare the class names of the data folder with the operator's list (--classes)",
        )
    return replace(description, classes=known)
