"""Counts how often certificates are parsed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

from cryptography import x509


@dataclass
class Parses:
    """The number of texts that were parsed."""

    count: int = 0


@contextmanager
def counted() -> Iterator[Parses]:
    """Counts as long as it is open."""
    parses = Parses()

    def watch(parse: Callable[[bytes], object]) -> Callable[[bytes], object]:
        def parse_counted(pem: bytes) -> object:
            parses.count += 1
            return parse(pem)

        return parse_counted

    one, several = x509.load_pem_x509_certificate, x509.load_pem_x509_certificates
    with (
        mock.patch.object(x509, "load_pem_x509_certificate", watch(one)),
        mock.patch.object(x509, "load_pem_x509_certificates", watch(several)),
    ):
        yield parses
