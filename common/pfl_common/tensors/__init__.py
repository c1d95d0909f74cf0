"""Named tensors and everything done with them without knowing a method: bytes, sums, files."""
