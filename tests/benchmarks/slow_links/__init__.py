"""Rounds over slow lines; `python -m tests.benchmarks.slow_links --help`."""
