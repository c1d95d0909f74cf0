"""Named tensors, and all that is done with them without knowing a method: bytes, sums, files."""
