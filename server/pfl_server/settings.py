"""The operator's settings of a coordinator, each with a stated default."""

from __future__ import annotations

import json
import platform
import re
from dataclasses import asdict, field
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic import JsonValue as Json
from pydantic.dataclasses import dataclass

from pfl_common.app.config import STRICT, Port, Why, held_to_terms
from pfl_common.errors import Refused, SettingError
from pfl_common.evaluation import FEWEST_REPORTERS
from pfl_common.spec import augmentation
from pfl_common.spec.data_description import LONGEST_TEXT, LONGEST_WORD, MOST_WORDS, check_words
from pfl_common.spec.rules import AskedRules
from pfl_common.spec.sample_form import read_form
from pfl_common.spec.word_list import settle_words

MOST_CLASSES = 20_000

Durability = Literal["power", "process"]
"""What the coordinator's state survives: a power cut, or only that the process is killed."""


def _read_classes(said: object) -> object:
    """A list of classes as it is typed (`cat,dog`), as TOML has it, or in a file: a JSON list, or a name a line."""
    names = said
    if isinstance(said, str):
        names = _read_text(said) if said else []
        if said and not names:
            raise ValueError(_A_LIST)
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise ValueError(_A_LIST)
    if len(set(names)) != len(names) or len(names) == 1 or len(names) > MOST_CLASSES:
        raise ValueError(_A_LIST)
    return tuple(names)


_A_LIST = (
    "two or more different names, none of them empty (cat,dog), or a file that is there: a JSON list, or one name a "
    "line"
)


def _read_text(said: str) -> list[str]:
    file = Path(said)
    try:
        is_file = file.is_file()
    except OSError:  # a long list of classes is no name that a file could have
        is_file = False
    return _read_list(file, _A_LIST) if is_file else [name.strip() for name in said.split(",")]


def _read_list(file: Path, expected: str) -> list[str]:
    try:
        text = file.read_text()
        listed = text.lstrip().startswith("[")
        # Empty lines are no names: a file of lines ends with one, or has one between two groups.
        found = json.loads(text) if listed else [line for line in text.splitlines() if line.strip()]
    except (OSError, ValueError, RecursionError):
        raise ValueError(expected) from None
    return [name.strip() if isinstance(name, str) else name for name in found]


def _read_vocabulary(said: object) -> object:
    """A list of words as TOML has it, or a file: a JSON list, or a word a line."""
    words = said
    if isinstance(said, str):
        words = _read_list(Path(said), _A_VOCABULARY) if said else []
    if not isinstance(words, list | tuple):
        raise ValueError(_A_VOCABULARY)
    if not words:
        return ()
    try:
        settled = settle_words([word for word in words if word != ""])
        check_words(settled)
    except (ValueError, Refused) as error:
        raise ValueError(f"{_A_VOCABULARY}; this is {error}") from None
    return settled


def _read_shape(said: object) -> object:
    """A form as it is typed, or as TOML has a shape: a list of numbers."""
    text = ",".join(map(str, said)) if isinstance(said, list | tuple) else said
    if isinstance(text, str):
        read_form(text)
    return text


def _read_run(said: object) -> object:
    """A run's name, also where its folder is named."""
    return Path(said).name if isinstance(said, str) else said


_A_VOCABULARY = (
    f"a file that is there: a JSON list of words, or one word a line; at most {MOST_WORDS} words of at most "
    f"{LONGEST_WORD} letters, each once"
)
Vocabulary: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_read_vocabulary)]
Form: TypeAlias = Annotated[str, BeforeValidator(_read_shape)]
Augment: TypeAlias = Annotated[str | augmentation.Steps, BeforeValidator(augmentation.read)]
Classes: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_read_classes)]
Network: TypeAlias = IPv4Network | IPv6Network
HERE_ONLY = frozenset(
    {"state", "host", "port", "enrol_port", "http_host", "http_port", "advertise", "new_run", "durability"}
    | {"log_format", "baseline", "approve", "certificate_life", "keys", "passphrase", "ca_cert", "ca_key"}
    | {"envelope", "proxied", "fewest_reporters", "site_metrics"}
)
"""Settings of this process; changing them does not make another run."""


ASKED_ORDER = [
    "method",
    "sites",
    "rounds",
    "seed",
    "participation",
    "drop",
    "candidates",
    "quorum",
    "round_seconds",
    "lease_seconds",
    "evaluate_every",
    "classes",
    "vocabulary",
    "length",
    "largest_norm",
    "backbone",
    "image_size",
    "pixel_range",
    "standardise",
    "encoder_projector",
    "threads",
    "set",
]
"""In which order `asked.json` names what it has always named: its bytes stay what they were. What is newer follows."""


_LIFE_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
SHORTEST_LIFE, LONGEST_LIFE = timedelta(seconds=10), timedelta(days=3650)


def read_life(text: str) -> timedelta:
    """A length of time such as 30d, 12h, 90m or 45s."""
    found = re.fullmatch(r"(\d{1,6})\s*([smhd])", text.strip())
    if found is None:
        raise ValueError("a length of time such as 30d, 12h, 90m or 45s")
    return timedelta(seconds=int(found[1]) * _LIFE_UNITS[found[2]])


def _check_life(text: str) -> str:
    if text and not SHORTEST_LIFE <= read_life(text) <= LONGEST_LIFE:
        raise ValueError("10s to 3650d: a certificate has to outlive a few calls")
    return text


def read_proxies(said: str) -> tuple[Network, ...]:
    """Networks as they are typed: 10.0.0.5,10.2.0.0/16."""
    return tuple(ip_network(part.strip(), strict=False) for part in said.split(",") if part.strip())


def _check_proxies(text: str) -> str:
    try:
        read_proxies(text)
    except ValueError:  # its words repeat all of what was given
        raise ValueError("addresses or networks with commas between, such as 10.0.0.5,10.2.0.0/16") from None
    return text


@dataclass(frozen=True, kw_only=True, config=STRICT)
@held_to_terms
class ServerSettings(AskedRules):
    """The settings of one coordinator and of its run, beside the rules of its rounds."""

    method: str = "dualfed"
    """Which method trains; `--list-methods` prints them."""
    sites: Annotated[int, Field(ge=1, le=100_000)] = 2
    """How many sites to wait for before the run begins."""
    classes: Classes = ()
    """The run's classes by name (a,b), or a file that lists them; a site with another one is refused. Empty: all names
    that sites have.
    """
    shape: Form = ""
    """What samples are: a kind (image, array, windows, tokens, table), a shape (3,32,32) or both (array:3,32,32); a
    site with others is refused. Pictures and texts may have any size. Empty: more than half of the sites say it.
    """
    vocabulary: Vocabulary = ()
    """The run's words, for texts: a file that lists them; a site's other words are unknown. Empty: all words that sites
    tell.
    """
    length: Annotated[int, Field(ge=0, le=LONGEST_TEXT), Why("0 takes the sites' own")] = 0
    """Words of the run's texts; 0: the longest over all sites, at most 1024. Shorter ones are padded, longer cut."""
    fewest_sites: Annotated[int, Field(ge=1, le=100_000), Why("what no site tells nobody knows")] = 1
    """Sites that have to tell a word of texts, or a category of a table's column, for the run to know it."""
    backbone: str = ""
    """Network; empty: chosen by the data's kind and size."""
    image_size: Annotated[int, Field(ge=0, le=4096), Why("0 takes the sites' own")] = 0
    """Side of the run's images; 0: the most common size over all sites, at most 224 on the longer side."""
    pixel_range: str = "auto"
    """Raw values of 16-bit or float pictures that become black and white: auto (agreed over the sites), LOW..HIGH, or
    per-picture.
    """
    standardise: Literal["agreed", "none"] = "agreed"
    """Numbers that are no pictures: by mean and deviation agreed over the sites, or none: as they are."""
    normalise: Literal["none", "half", "imagenet", "cifar100", "agreed"] = "none"
    """Channels of pictures, less a mean and by a deviation: none, a named pair of them, or agreed over the sites."""
    augment: Augment = "none"
    """How training pictures are changed by chance: none, flip, papers, medical, or in a file a list [[augment]]."""
    encoder_projector: bool = False
    """Put DualFed's projector behind the encoder of any method (equal capacity)."""
    weights: str = ""
    """Weights the first model begins from: a .safetensors, .pth or .pt file, or torchvision's name for its own
    (ResNet18_Weights.IMAGENET1K_V1). Their network, image size and pixel standardisation become the run's where they
    are known and nothing else is asked for. Empty: all values are drawn.
    """
    weights_like: str = ""
    """torchvision's name of the weights that a file is like: their network, image size and pixel standardisation."""
    freeze: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Modules or tensors of encoder and heads that stand still at all sites, by their whole paths
    (encoder.stage1,head); they cross in the first model alone.
    """
    set: dict[str, Json] = field(default_factory=dict)
    """The method's own settings."""
    begin_from: Annotated[str, BeforeValidator(_read_run)] = ""
    """Begin with the models of this run, which is over: its name or folder below `state`. Sites begin with their own
    parts of it.
    """
    state: Path = Path("pfl-state")
    """Where the coordinator keeps everything."""
    host: str = "127.0.0.1"
    """Address to listen on for sites."""
    port: Port = 7443
    """Port for sites (mutual TLS); 0 takes a free one."""
    enrol_port: Port = 7444
    """Port where new sites enrol; 0 takes a free one."""
    http_host: str = "127.0.0.1"
    """Address of status page and metrics: plain HTTP that names the sites, so this machine alone unless said."""
    http_port: Port = 7480
    """Port of status page, metrics and health; 0 takes a free one."""
    advertise: str = ""
    """Names or addresses under which sites reach this machine, the one for invitations first (a,b); empty: the host."""
    baseline: str = ""
    """Finished runs that the gain is told against, by name or folder (a,b), with what differs; the newest of local and
    fedavg that differ in nothing but the method are by themselves.
    """
    fewest_reporters: Annotated[int, Field(ge=1, le=100_000), Why("1 shows every mean")] = FEWEST_REPORTERS
    """Sites over which accuracy, loss and diagnostics are told at least: on the page, by `pfl status`, in the log, in
    metrics. The journal has every sum.
    """
    site_metrics: bool = False
    """Give each site series of its own among the metrics: whether it is here, and in how many rounds it was counted."""
    new_run: bool = False
    """Begin a new run although the last one is not finished."""
    durability: Durability = "power"
    """What the coordinator's state survives: a power cut (`power`), or only that the process is killed (`process`);
    with `process` no round waits for the disk, and after a power cut the run may be lost.
    """

    approve: bool = False
    """Let a site with a valid invitation wait until the operator has approved its keys: pfl approve SITE."""
    certificate_life: Annotated[str, AfterValidator(_check_life)] = ""
    """How long certificates of sites are good, and this coordinator's own (30d, 12h, 90m, 45s); they are renewed at two
    thirds of it. Empty: 30 days, and a year for its own.
    """
    keys: str = ""
    """Where the coordinator's private keys lie if not in the state folder: a folder on another volume, or `credentials`
    for those that systemd hands to the unit.
    """
    passphrase: str = ""
    """Lock the private keys by a passphrase: a file that holds it, or `ask` for a prompt on the terminal."""
    ca_cert: Path | None = None
    """Begin the federation with this authority, an intermediate one that the company's own has signed (PEM)."""
    ca_key: Path | None = None
    """Its private key (P-256, PEM)."""
    envelope: Literal["x25519", "hybrid"] = "x25519"
    """In what parcels are sealed: hybrid is ML-KEM-768 and X25519 together, for sites of this release or newer."""
    proxied: Annotated[str, AfterValidator(_check_proxies)] = ""
    """Addresses or networks of a proxy in front that ends TLS (10.0.0.5,10.2.0.0/16): sites are then known by the
    signatures on their calls, and where they call from by its header x-forwarded-for.
    """

    log_format: str = "text"
    """How the log is written to standard error: text (auto is the same; coloured on a terminal) or json."""

    @property
    def reachable_names(self) -> tuple[str, ...]:
        """Under what sites reach this machine, the name for invitations first."""
        names = (_without_brackets(name.strip()) for name in self.advertise.split(","))
        return tuple(dict.fromkeys(filter(None, names))) or (_dialled(self.host),)

    @property
    def local_name(self) -> str:
        """Under what programs on this very machine reach it, whatever name service there is."""
        host = _without_brackets(self.host)
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)

    @property
    def http_name(self) -> str:
        """Under what a browser reaches the status page."""
        return _dialled(self.http_host)

    def __post_init__(self) -> None:
        if (self.ca_cert is None) != (self.ca_key is None):
            raise SettingError(
                "one of --ca-cert and --ca-key without the other",
                expected="the certificate and the private key of one authority",
                advice="name both files, or none for a federation with an authority of its own",
            )

    def run_part(self) -> dict[str, Json]:
        """What makes this run this run: everything but where it listens and keeps its files."""
        plain = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}
        names = dict.fromkeys([*ASKED_ORDER, *plain])
        return {name: plain[name] for name in names if name not in HERE_ONLY}


def _dialled(host: str) -> str:
    """What others dial for a host: an address that only means "all of mine" is none they could."""
    bare = _without_brackets(host)
    return platform.node() if bare in ("0.0.0.0", "::") else bare


def _without_brackets(host: str) -> str:
    """An IPv6 address, also as it is written before a port: a certificate and `--under` know it without brackets."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host
