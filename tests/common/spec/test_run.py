"""What is agreed before any tensor moves has one text, one hash, and no room for a misspelling."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace

import pytest
from pydantic import ValidationError

from pfl_common.spec.manifest import Entry, manifest_hash
from pfl_common.spec.participation import Participation
from pfl_common.spec.run import Description, Header, Kind, Model, RunSpec, Task, parcel_key
from pfl_common.spec.table_schema import Column

DOWN = (Entry("encoder.weight", "float32", (2, 3)), Entry("slot0.weight", "float32", (2, 3), group="slot0"))

SPEC = RunSpec(
    id="first",
    method="dualfed",
    settings={"lambda": 40.0, "personal": [0, 1, 1, 0], "ensemble": "prob", "drop_last": False},
    model=Model("cnn", (1, 28, 28), ("cat", "dog")),
    rounds=100,
    seed=7,
    roster=("a", "b"),
    participation=Participation(low=0.5, high=1.0, drop=0.1),
    quorum=0.5,
    manifests={"init": DOWN[:1], "train/stage/down": DOWN},
    versions={"torch": "2.13"},
)

HEADER = Header("first", 3, 1, Kind.TRAIN, "train", "up", "site-a", manifest_hash(DOWN), groups=("slot0",))


def test_a_specification_comes_back_as_it_was() -> None:
    """Every field, nested ones too, with its type."""
    back = RunSpec.from_json(SPEC.to_json())

    assert SPEC == back
    assert (SPEC.to_json(), SPEC.hash) == (back.to_json(), back.hash)
    assert isinstance(back.manifests["init"][0], Entry)


def test_the_text_is_canonical() -> None:
    """Sorted keys and no spaces, so that two programs hash the same bytes."""
    text = SPEC.to_json()

    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    assert 64 == len(SPEC.hash)


def test_the_text_is_that_of_earlier_releases() -> None:
    """Sites know a run by its hash: that of a run under way has to be what it was when the run began."""
    assert "505218528b192ef7696b968b6c71f1d797d3e290325025c131994fa06028df01" == SPEC.hash


def test_the_scaling_of_pixels_is_written_where_there_is_one() -> None:
    """And read back with the same hash; the text of a run without it does not name it."""
    model = replace(SPEC.model, pixel_mean=(0.5,), pixel_deviation=(0.25,))
    scaled = replace(SPEC, model=model)

    assert (False, True) == ("pixel_" in SPEC.to_json(), "pixel_mean" in scaled.to_json())
    assert scaled == RunSpec.from_json(scaled.to_json())
    assert SPEC.hash != scaled.hash


def test_the_hash_of_files_is_written_where_it_is_another_than_at_first() -> None:
    """In a specification and in a header; older runs keep their text."""
    spec, header = replace(SPEC, digests="blake3"), replace(HEADER, digests="blake3")

    assert ("digests" in SPEC.to_json(), "digests" in HEADER.to_json()) == (False, False)
    assert (spec, header) == (RunSpec.from_json(spec.to_json()), Header.from_json(header.to_json()))
    assert '"digests":"blake3"' in spec.to_json()
    assert '"digests":"blake3"' in header.to_json()
    assert SPEC.hash != spec.hash


def test_what_a_site_was_sent_is_written_where_it_is_said() -> None:
    """In the header of a download; that of a run without changes keeps its text."""
    header = replace(HEADER, sent="ab" * 32)

    assert '"sent"' not in HEADER.to_json()
    assert header == Header.from_json(header.to_json())
    assert f'"sent":"{"ab" * 32}"' in header.to_json()


def test_a_run_without_a_table_does_not_speak_of_one() -> None:
    """So older runs keep their text; with one every field of its columns is in the text, and comes back."""
    assert '"table"' not in SPEC.to_json()
    column = Column("ward", categorical=True, categories=("a",))
    spec = replace(SPEC, model=replace(SPEC.model, table=(column,)))
    assert spec == RunSpec.from_json(spec.to_json())
    assert '"categories":["a"]' in spec.to_json()
    with pytest.raises(ValidationError):
        RunSpec.from_json(spec.to_json().replace('"hashed":0', '"hashed":0,"more":1'))


def test_what_an_earlier_specification_lacks() -> None:
    """A limit for updates came later than the first runs: theirs is the usual one."""
    fields = json.loads(SPEC.to_json())
    del fields["largest_norm"]

    assert 1e9 == RunSpec.from_json(json.dumps(fields)).largest_norm


@pytest.mark.parametrize(
    ("name", "value"), [("round_seconds", 1e9), ("lease_seconds", 1e6), ("seed", 2**60), ("rounds", 10**7)]
)
def test_a_run_of_other_bounds_is_read(name: str, value: float) -> None:
    """Earlier releases let an operator ask for more."""
    text = replace(SPEC, **{name: value}).to_json()

    assert (value, text) == (getattr(RunSpec.from_json(text), name), RunSpec.from_json(text).to_json())


def test_the_rules_are_told_as_they_are_typed() -> None:
    """Participation too, which is pinned in another form; the same would be pinned again."""
    assert (100, 7, 0.5, "0.5..1", 0.1) == (
        SPEC.asked.rounds,
        SPEC.asked.seed,
        SPEC.asked.quorum,
        SPEC.asked.participation,
        SPEC.asked.drop,
    )
    assert SPEC.participation == SPEC.asked.asks()


def test_the_order_of_settings_does_not_matter() -> None:
    """Two users who type the same in another order run the same."""
    turned = replace(SPEC, settings=dict(reversed(SPEC.settings.items())))

    assert SPEC.hash == turned.hash


@pytest.mark.parametrize(
    "change",
    [{"seed": 8}, {"settings": {"lambda": 41.0}}, {"roster": ("a",)}, {"threads": 2}, {"manifests": {}}],
)
def test_every_change_shows_in_the_hash(change: dict[str, object]) -> None:
    """A specification that differs is another run."""
    assert SPEC.hash != replace(SPEC, **change).hash


def test_a_specification_does_not_change() -> None:
    """It is pinned when the run starts."""
    with pytest.raises(FrozenInstanceError):
        SPEC.rounds = 3


@pytest.mark.parametrize(
    "change",
    [{"rounds": "many"}, {"seed": 1.5}, {"model": {"backbone": "cnn"}}, {"roster": "a"}, {"manifests": []}],
)
def test_an_ill_typed_field_is_an_error(change: dict[str, object]) -> None:
    """A specification from another version is refused before anything is trained."""
    with pytest.raises(ValidationError, match=next(iter(change))):
        RunSpec.from_json(json.dumps(json.loads(SPEC.to_json()) | change))


@pytest.mark.parametrize("name", ["seed", "rounds", "roster"])
def test_a_missing_field_is_an_error(name: str) -> None:
    """Nothing that has no default is guessed."""
    fields = json.loads(SPEC.to_json())
    del fields[name]

    with pytest.raises(ValidationError, match=name):
        RunSpec.from_json(json.dumps(fields))


def test_an_unknown_field_is_an_error() -> None:
    """A word this version does not know may mean something that must not be skipped."""
    with pytest.raises(ValidationError, match="novelty"):
        RunSpec.from_json(json.dumps(json.loads(SPEC.to_json()) | {"novelty": 1}))


def test_an_unknown_field_of_a_part_is_an_error() -> None:
    """The same holds inside."""
    fields = json.loads(SPEC.to_json())
    fields["model"]["novelty"] = 1

    with pytest.raises(ValidationError, match="novelty"):
        RunSpec.from_json(json.dumps(fields))


@pytest.mark.parametrize("field", ["quorum", "round_seconds", "lease_seconds"])
def test_a_whole_number_where_a_fraction_may_stand(field: str) -> None:
    """A user who writes 1 for 1.0 has the same text, so both ends have the same hash."""
    whole = replace(SPEC, **{field: 1})

    assert replace(SPEC, **{field: 1.0}).hash == whole.hash == RunSpec.from_json(whole.to_json()).hash


@pytest.mark.parametrize("field", ["novelty", "Sender"])
def test_an_unknown_field_of_a_header_is_an_error(field: str) -> None:
    """What is not understood is not skipped."""
    with pytest.raises(ValidationError, match=field):
        Header.from_json(json.dumps(json.loads(HEADER.to_json()) | {field: 1}))


def test_a_manifest_is_found_by_its_parcel() -> None:
    """Kind, phase and direction; the first model has a name of its own."""
    assert DOWN == SPEC.manifest(Kind.TRAIN, "stage", "down")
    assert DOWN[:1] == SPEC.init_manifest
    assert "evaluate/train/up" == parcel_key(Kind.EVALUATE, "train", "up")


def test_a_task_has_a_name_of_its_own() -> None:
    """Receipts of two attempts, or of two kinds in one round, are not mixed up; names sort by round."""
    keys = [
        Task(Kind.TRAIN, 2, 10).key,
        Task(Kind.TRAIN, 2, 10, attempt=2).key,
        Task(Kind.EVALUATE, 2, 10).key,
    ]

    assert ["000002-1-train", "000002-2-train", "000002-1-evaluate"] == keys
    assert Task(Kind.TRAIN, 9, 10).key < Task(Kind.TRAIN, 10, 10).key


def test_a_header_comes_back_as_it_was() -> None:
    """Its text is bound to the sealed bytes, so it must be one text."""
    assert HEADER == Header.from_json(HEADER.to_json())
    assert HEADER.to_json() == Header.from_json(HEADER.to_json()).to_json()


def test_an_ill_typed_header_is_an_error() -> None:
    """Nothing of a peer is taken on trust."""
    with pytest.raises(ValidationError, match="direction"):
        Header.from_json(HEADER.to_json().replace('"up"', '"sideways"'))


@pytest.mark.parametrize(
    "other",
    [
        DOWN[::-1],
        DOWN[:1],
        (replace(DOWN[0], name="encoder.bias"), DOWN[1]),
        (replace(DOWN[0], dtype="float64"), DOWN[1]),
        (replace(DOWN[0], shape=(3, 2)), DOWN[1]),
        (DOWN[0], replace(DOWN[1], group="")),
    ],
)
def test_every_change_of_a_manifest_shows(other: tuple[Entry, ...]) -> None:
    """Order, names, types, shapes and groups: the bytes carry none of these."""
    assert manifest_hash(DOWN) != manifest_hash(other)
    assert 32 == len(manifest_hash(DOWN))


def test_a_description_says_what_data_there_are() -> None:
    """A site need not tell how many samples it has."""
    assert (None, "image") == (
        Description((1, 28, 28), ("a",)).samples,
        Description((1, 28, 28), ("a",)).kind,
    )


@pytest.mark.parametrize("name", ["../elsewhere", "a/b", "", ".hidden", "a" * 101])
def test_a_runs_name_is_no_path(name: str) -> None:
    """A site makes a folder of this name from what a coordinator says: nothing else can be named by it."""
    text = SPEC.to_json().replace(f'"id":"{SPEC.id}"', f'"id":"{name}"')
    with pytest.raises(ValueError, match="id"):
        RunSpec.from_json(text)
