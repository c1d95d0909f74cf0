"""Dockerfile and compose.yaml, read for what they mean."""
