"""One run from its beginning to its end."""
