"""Numbers and events of a run for people to watch; no computation depends on them."""
