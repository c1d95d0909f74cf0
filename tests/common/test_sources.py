"""The digest of the product's own files changes with each of them and with nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

from pfl_common import sources


def test_a_changed_line_is_another_digest(tmp_path: Path) -> None:
    """Names and contents of Python files count; caches, other files and the place do not."""
    here, there = tmp_path / "here" / "pkg", tmp_path / "there" / "pkg"
    (here / "inside").mkdir(parents=True)
    (here / "a.py").write_text("a = 1\n")
    (here / "inside" / "b.py").write_text("b = 2\n")
    shutil.copytree(here, there)
    (there / "__pycache__").mkdir()
    (there / "__pycache__" / "a.pyc").write_bytes(b"cache")
    (there / "page.html").write_text("a page")
    assert sources.digest_of(here) == sources.digest_of(there)
    (there / "inside" / "b.py").write_text("b = 3\n")
    assert sources.digest_of(here) != sources.digest_of(there)
    (there / "inside" / "b.py").write_text("b = 2\n")
    (there / "inside" / "b.py").rename(there / "inside" / "c.py")
    assert sources.digest_of(here) != sources.digest_of(there)


def test_the_products_own_digest_is_of_all_three_packages() -> None:
    """It is found without importing what a coordinator must not load."""
    top = Path(sources.__file__).parents[2]
    folders = [
        top / room / name for room, name in zip(("common", "server", "client"), sources.PACKAGES, strict=True)
    ]
    assert sources.digest_of(*folders) == sources.digest()
