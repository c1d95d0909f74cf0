"""Federations inside one process, and replays of real runs."""
