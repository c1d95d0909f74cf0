"""All randomness of a run, derived from names and numbers instead of a generator's history."""
