"""The coordinator's gRPC ports for sites and operators, over mutual TLS."""
