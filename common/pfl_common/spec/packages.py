"""An installed package that a run's network or method comes from, where that is not the product itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field

Part: TypeAlias = Literal["backbone", "method"]
"""What a package can bring into a run."""


@dataclass(frozen=True)
class Package:
    """A package by the name and the version that it is installed under."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    # A site's engineer reads both in an advice to install: nothing but what a package can be called gets there.
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?$")]
    version: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.!+_-]{0,63}$")]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"
