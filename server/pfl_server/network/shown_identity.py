"""What a port shows to its callers and whom it trusts; exchanged while the port is open, from the next line on."""

from __future__ import annotations

import grpc

from pfl_common.identity import KeyPair


class ShownIdentity:
    """A port's certificate with its key, and the authorities that clients' certificates may come from."""

    def __init__(self, pair: KeyPair, ca_pem: bytes | None = None) -> None:
        self._now = self._configure(pair, ca_pem)

    def exchange(self, pair: KeyPair, ca_pem: bytes | None = None) -> None:
        """Lines that are open stay so: who speaks on them is known by the signature on each call."""
        self._now = self._configure(pair, ca_pem)

    def credentials(self, *, require_certificate: bool) -> grpc.ServerCredentials:
        """For one port; gRPC asks at each new line what to show."""
        return grpc.dynamic_ssl_server_credentials(
            self._now, lambda: self._now, require_client_authentication=require_certificate
        )

    @staticmethod
    def _configure(pair: KeyPair, ca_pem: bytes | None) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(pair.key_pem, pair.certificate_pem)], ca_pem)
