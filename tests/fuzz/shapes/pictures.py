"""Pictures whose headers claim other sides, depths and places than their bytes have."""

from __future__ import annotations

import struct
import warnings
import zlib
from typing import Any  # a tag's value is whatever one likes

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.client.data.drawn import halves, write_dicom
from tests.fuzz import odd
from tests.fuzz.shape import Shape, shape
from tests.fuzz.target import as_file
from tests.fuzz.targets.data_files import pictures

_SIDES = st.sampled_from([0, 1, 2, 7, 8, 255, 9000, 30_000, 65_535, 2**31 - 1, 2**32 - 1])
_SHORT = st.sampled_from([0, 1, 8, 255, 30_000, 65_535])


@st.composite
def _png(draw: DrawFn) -> bytes:
    wide, high = draw(_SIDES), draw(_SIDES)
    depth, colour = draw(st.sampled_from([1, 2, 4, 8, 16, 3])), draw(st.sampled_from([0, 2, 3, 4, 6, 9]))
    head = struct.pack(">IIBBBBB", wide, high, depth, colour, 0, 0, draw(st.sampled_from([0, 0, 1, 7])))
    rows = zlib.compress(bytes(draw(st.sampled_from([0, 9, 72, 4096, 200_000]))))
    pieces = [(b"IHDR", head)]
    extra = st.sampled_from(
        [
            (b"PLTE", bytes(9)),
            (b"PLTE", bytes(769)),
            (b"tRNS", b"\0\1"),
            (b"eXIf", b"MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"),
            (b"eXIf", b"MM\0*\xff\xff\xff\xff"),
            (b"iTXt", b"a\0\1\0\0\0" + zlib.compress(bytes(3_000_000))),
            (b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(b"\nexif\n 9999\n" + b"ff" * 99)),
            (b"iCCP", b"x\0\0" + zlib.compress(bytes(2_000_000))),
            (b"acTL", struct.pack(">II", 2**31, 0)),
            (b"fcTL", struct.pack(">IIIIIHHBB", 0, 2**31, 2**31, 0, 0, 0, 0, 9, 9)),
            (b"gAMA", b""),
            (b"sRGB", b"\xff"),
            (b"pHYs", bytes(3)),
        ]
    )
    pieces += draw(st.lists(extra, max_size=3))
    pieces += [(b"IDAT", rows)] * draw(st.sampled_from([0, 1, 1, 1, 2])) + [(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in pieces)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


@st.composite
def _tiff(draw: DrawFn) -> bytes:
    """A directory of tags; each is a number, or the place of some."""
    tags = {256: draw(_SIDES), 257: draw(_SIDES), 258: 8, 259: 1, 262: 1, 273: 200, 277: 1, 278: 8, 279: 64}
    others = st.sampled_from(
        [*tags, 254, 274, 284, 317, 320, 322, 323, 324, 325, 338, 339, 34665, 34675, 700]
    )
    values = _SIDES | st.sampled_from([3, 5, 6, 7, 8, 32773, 50000, 34712])
    for tag, value in draw(st.dictionaries(others, values, max_size=3)).items():
        tags[tag] = value
    kinds, counts = (
        st.sampled_from([1, 2, 3, 4, 4, 4, 5, 12, 99]),
        st.sampled_from([1, 1, 1, 1, 0, 3, 65_535, 2**31]),
    )
    entries = b"".join(
        struct.pack("<HHII", tag, draw(kinds), draw(counts), value % 2**32)
        for tag, value in sorted(tags.items())
    )
    after = draw(st.sampled_from([0, 0, 8, 2**32 - 1]))  # the next directory: this one again
    content = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + struct.pack("<I", after)
    return content.ljust(200, b"\0") + bytes(range(64)) * draw(st.sampled_from([0, 1, 4]))


@st.composite
def _small_headers(draw: DrawFn) -> bytes:
    """Formats whose header is a few numbers."""
    wide, high = draw(_SIDES), draw(_SIDES)
    match draw(st.sampled_from(["ppm", "bmp", "gif", "webp", "jpeg"])):
        case "ppm":
            kind, most = draw(st.sampled_from([b"P4", b"P5", b"P6", b"P3", b"Pf"])), draw(_SHORT)
            return kind + b"\n#" + b"x" * 40 + f"\n{wide} {high}\n{most}\n".encode() + bytes(200)
        case "bmp":
            head = struct.pack(
                "<IiiHHIIiiII", 40, wide % 2**31, -high % 2**31, 1, draw(_SHORT) % 64, 0, 0, 0, 0, 0, 0
            )
            return b"BM" + struct.pack("<IHHI", 200, 0, 0, 54) + head + bytes(200)
        case "gif":
            frame = b"," + struct.pack("<HHHHB", 0, 0, wide % 65_536, high % 65_536, 0) + b"\x02\x02D\x01\0;"
            return (
                b"GIF89a" + struct.pack("<HH", wide % 65_536, high % 65_536) + b"\x80\0\0" + bytes(6) + frame
            )
        case "webp":
            canvas = struct.pack("<I", wide % 2**24)[:3] + struct.pack("<I", high % 2**24)[:3]
            body = (
                b"VP8X"
                + struct.pack("<I", 10)
                + b"\x02\0\0\0"
                + canvas
                + b"VP8L"
                + struct.pack("<I", 9)
                + b"/" * 9
            )
            return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body
        case _:
            size = struct.pack(">HH", high % 65_536, wide % 65_536)
            return (
                b"\xff\xd8\xff\xc0\0\x0b\x08"
                + size
                + b"\x01\x01\x11\0"
                + b"\xff\xda\0\x08\1\1\0\0?\0"
                + bytes(60)
            )


@st.composite
def _spliced(draw: DrawFn) -> bytes:
    """A sound picture in which a few bytes are a large number."""
    content = draw(odd.one_of(pictures()))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, min(len(content), 120)))
        number = struct.pack(draw(st.sampled_from(["<I", ">I"])), draw(_SIDES))
        content = content[:at] + number + content[at + 4 :]
    return content


@shape("picture")
def build_picture() -> Shape:
    """A picture of any of the formats that are read."""
    return _png() | _tiff() | _small_headers() | _spliced()


_TAGS: dict[str, list[Any]] = {
    "Rows": [0, 1, 65_535],
    "Columns": [0, 1, 65_535],
    "BitsAllocated": [0, 1, 7, 8, 16, 32, 64, 65_535],
    "BitsStored": [0, 1, 12, 33, 65_535],
    "HighBit": [0, 15, 65_535],
    "SamplesPerPixel": [0, 1, 2, 3, 65_535],
    "PixelRepresentation": [0, 1, 9],
    "PlanarConfiguration": [0, 1, 9],
    "NumberOfFrames": ["0", "1", "2", "-1", "99999999999"],
    "PhotometricInterpretation": ["MONOCHROME1", "RGB", "YBR_FULL_422", "PALETTE COLOR", "", "\x1b[2J"],
    "WindowCenter": ["1e999", "40", ["40", "50"], "-1e300", "0"],
    "WindowWidth": ["0", "-5", "1e300", "1e-300", ["1", "2"]],
    "RescaleSlope": ["0", "1e300", "-1", "1e-300"],
    "RescaleIntercept": ["1e308", "-1e308", "-1024"],
    "VOILUTFunction": ["SIGMOID", "LINEAR_EXACT", "?"],
    "PixelData": [b"", bytes(2), bytes(9999)],
    "SmallestImagePixelValue": [0],
}
_SYNTAXES = (
    *("1.2.840.10008.1.2.1", "1.2.840.10008.1.2", "1.2.840.10008.1.2.2", "1.2.840.10008.1.2.1.99"),
    *(
        "1.2.840.10008.1.2.5",
        "1.2.840.10008.1.2.4.50",
        "1.2.840.10008.1.2.4.70",
        "1.2.840.10008.1.2.4.90",
        "1.2.3",
    ),
)


@st.composite
def _dicom(draw: DrawFn) -> bytes:
    names = draw(st.lists(st.sampled_from(sorted(_TAGS)), unique=True, max_size=4))
    tags = {name: draw(odd.one_of(_TAGS[name])) for name in names}
    kind = draw(st.sampled_from([np.uint8, np.int16, np.uint16]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            file = write_dicom(
                as_file(b"", "shaped.dcm"), halves(0, 100).astype(kind), personal=False, **tags
            )
        except Exception:  # what its own writer refuses to write
            return b"DICM"
        content = file.read_bytes()
    # Frames by the syntax's own rules are missing, which is the point.
    syntax = draw(st.sampled_from(_SYNTAXES)).encode()
    plain = b"1.2.840.10008.1.2.1\0"
    return (
        content.replace(plain, syntax[: len(plain)].ljust(len(plain), b"\0"), 1)
        if draw(st.booleans())
        else content
    )


@shape("dicom")
def build_dicom() -> Shape:
    """A DICOM file with tags that contradict each other."""
    return _dicom()
