"""The coordinator's ports for sites and operators: gRPC over mutual TLS."""
