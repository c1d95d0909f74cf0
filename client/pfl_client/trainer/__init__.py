"""The trainer: a process of its own with torch and the data, and without any network."""
