"""How the coordinator's cost of a round grows; `python -m tests.benchmarks.growth --help`."""
