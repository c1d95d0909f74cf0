"""The no-op workload as a Flower app."""
