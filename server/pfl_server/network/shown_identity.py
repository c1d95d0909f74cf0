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
        """For one port; gRPC asks at each new line whether there is something else to show."""
        shown = self._now

        def find_new() -> grpc.ServerCertificateConfiguration | None:
            # Only what is new: each answer makes gRPC exchange what handshakes under way still use, and lines that come
            # and go by the hundred then end the process (grpcio 1.76 to 1.85).
            nonlocal shown
            before, shown = shown, self._now
            return None if before is shown else shown

        return grpc.dynamic_ssl_server_credentials(
            shown,
            find_new,  # type: ignore[arg-type]  # nothing new: documented, and not in the stubs
            require_client_authentication=require_certificate,
        )

    @staticmethod
    def _configure(pair: KeyPair, ca_pem: bytes | None) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(pair.key_pem, pair.certificate_pem)], ca_pem)
