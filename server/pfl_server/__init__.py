"""The coordinator: samples, asks, gathers, sums, keeps."""
