"""Decisions about a run, made from plain values: no clock, no socket, no tensor."""
