"""The digest of the product's own files changes with each of them and with nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

from pfl_common.app import code_digest


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
    assert code_digest.digest_of(here) == code_digest.digest_of(there)
    (there / "inside" / "b.py").write_text("b = 3\n")
    assert code_digest.digest_of(here) != code_digest.digest_of(there)
    (there / "inside" / "b.py").write_text("b = 2\n")
    (there / "inside" / "b.py").rename(there / "inside" / "c.py")
    assert code_digest.digest_of(here) != code_digest.digest_of(there)


def test_the_products_own_digest_is_of_all_three_packages() -> None:
    """It is found without importing what a coordinator must not load."""
    top = Path(code_digest.__file__).parents[3]
    folders = [
        top / room / name
        for room, name in zip(("common", "server", "client"), code_digest.PACKAGES, strict=True)
    ]
    assert code_digest.digest_of(*folders) == code_digest.digest()
