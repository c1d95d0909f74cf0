"""What is agreed before a run and said during it, as plain values."""
