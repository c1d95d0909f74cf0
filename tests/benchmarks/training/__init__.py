"""What local training costs beside a plain loop; `python -m tests.benchmarks.training --help`."""
