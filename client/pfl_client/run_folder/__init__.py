"""A site's files of a run: vault, outbox, serving model, and the list of everything that left."""
