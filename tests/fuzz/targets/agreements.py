"""What sites say of their data, taken together: a run that the coordinator agrees on is one that each site takes."""

from __future__ import annotations

from dataclasses import replace

from google.protobuf.message import DecodeError

from pfl_common.errors import Refused, UserError
from pfl_common.spec import data_description
from pfl_common.spec.run import Description
from pfl_common.spec.run_bounds import check_spec
from pfl_common.wire import convert
from pfl_common.wire import coordinator_pb2 as pb
from pfl_server.decisions.input_choice import Wish
from pfl_server.decisions.model_choice import agree
from pfl_server.decisions.site_check import judge
from tests.fuzz.target import target
from tests.fuzz.targets.calls import NUMBERS, PICTURES, TABLE
from tests.fuzz.targets.specifications import pin

SEPARATOR = b"\n--\n"
"""Between what two sites say."""
TEXTS = Description(
    (9,), ("bad", "good"), 12, "tokens", values="numbers", numbering="words", words=("fever", "cough")
)
WINDOWS = Description((3, 32), ("slow", "fast"), 9, "windows", values="numbers", low=-1.0, high=2.0)


def _seeds() -> list[bytes]:
    said = [PICTURES, TABLE, NUMBERS, TEXTS, WINDOWS]
    alone = [convert.say_description(one).SerializeToString() for one in said]
    return [SEPARATOR.join((one, one)) for one in alone]


@target("agreement", Refused, UserError, DecodeError, seeds=_seeds, words=(SEPARATOR,))
def agree_on(content: bytes) -> None:
    """What one site says must not end the coordinator, nor make it ask of the others what they would refuse."""
    sites: dict[str, Description] = {}
    for place, said in enumerate(content.split(SEPARATOR)[:3]):
        sites[f"site-{place}"] = one = convert.hear_description(pb.JoinRequest.FromString(said))
        data_description.check(one)
    verdict = judge(sites, wanted=2)
    if verdict.hindrance:
        return
    fitting = {site: sites[site] for site in verdict.fitting}
    model = agree(fitting, Wish())
    check_spec(replace(pin(), model=model, roster=tuple(fitting)))
