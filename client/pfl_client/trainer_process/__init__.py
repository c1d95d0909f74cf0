"""The trainer as the daemon uses it: a process of its own, spoken to over ZeroMQ. Torch-free."""
