"""What a site keeps of a run on disk: vault, outbox, serving model, and the list of all that left."""
