"""The images really built and really run, with buildah alone: what `tests/containers` does."""
