"""What is counted and remembered of a run for the people who watch it; nothing that is computed depends on it."""
