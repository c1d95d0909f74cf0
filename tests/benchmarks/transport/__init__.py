"""What rounds cost beside learning; `python -m tests.benchmarks.transport --help`."""
