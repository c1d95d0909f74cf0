"""Every draw of a run, from words and not from history."""
