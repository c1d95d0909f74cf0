"""The coordinator's state folder: journal, checkpoints, updates and downloads on disk."""
