"""The daemon's side of the trainer: a process of its own, reached over ZeroMQ. Torch-free."""
