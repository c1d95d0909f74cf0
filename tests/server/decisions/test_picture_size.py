"""The one size of a run's pictures: counted over all sites, capped, named, explained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pfl_common.spec.run import Description
from pfl_server.decisions.input_choice import Wish, explain
from pfl_server.decisions.model_choice import agree

PICTURES = Description((3, 40, 48), ("cat", "dog"), 5, sizes=((40, 48, 5),), high=255)


def sized(*sizes: tuple[int, int, int]) -> Description:
    """A site with so many pictures of each size, the first of which it names."""
    return replace(PICTURES, shape=(3, *sizes[0][:2]), sizes=sizes)


def told(description: Description, wish: Wish) -> str:
    """What a run of one site says of the size."""
    sites = {"a": description}
    return explain(sites, wish, shape=agree(sites, wish).shape, features=0)["image size"]


@pytest.mark.parametrize(
    ("sites", "size"),
    [
        ([sized((100, 200, 3), (40, 48, 2)), sized((40, 48, 2))], (40, 48)),
        ([sized((100, 200, 2), (40, 48, 2)), sized((100, 200, 1), (40, 48, 1))], (40, 48)),
        ([sized((3000, 4000, 6))] * 6, (168, 224)),
        ([sized((4000, 3000, 6))], (224, 168)),
        ([sized((225, 1, 1))], (224, 1)),
        ([sized((10000, 2, 1))], (224, 1)),
        ([sized((224, 224, 1))], (224, 224)),
        ([replace(sized((40, 48, 5)), sizes=()), sized((60, 60, 4))], (40, 48)),
    ],
    ids=["all sites count", "tie: smaller", "capped", "upright", "thin", "thinner", "just", "an older site"],
)
def test_the_size_is_counted_over_all_sites_and_capped(
    sites: list[Description], size: tuple[int, int]
) -> None:
    """The most common size of all pictures, not of most sites; its longer side is at most 224."""
    assert (3, *size) == agree({f"s{n}": one for n, one in enumerate(sites)}, Wish()).shape


def test_a_site_that_claims_endless_pictures() -> None:
    """How many it has is its own word: it does not make everybody's pictures a dot."""
    honest = {f"s{n}": sized((40, 48, 500)) for n in range(120)}
    assert (3, 40, 48) == agree(honest | {"h": sized((1, 1, 1 << 40))}, Wish()).shape


def test_a_named_size_is_taken_as_it_is() -> None:
    """Also above the cap."""
    assert (3, 512, 512) == agree({"a": sized((3000, 4000, 6))}, Wish(image_size=512)).shape


def test_the_backbone_follows_the_capped_size() -> None:
    """A network for pictures that are resized, not for those on disk."""
    assert "resnet18" == agree({"a": sized((3000, 4000, 6))}, Wish()).backbone
    assert "resnet8" == agree({"a": sized((3000, 4000, 6))}, Wish(image_size=64)).backbone


def test_the_size_is_explained() -> None:
    """How many pictures have it, that it was capped, what to do for another; or that it was named."""
    words = told(sized((3000, 4000, 6), (40, 48, 1)), Wish())
    for fact in ("168x224", "3000x4000", "6 of 7 pictures", "to 224", "--image-size N"):
        assert fact in words
    assert "--image-size" in told(PICTURES, Wish(image_size=32))
