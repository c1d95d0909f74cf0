"""The site: a light daemon and the trainer it starts."""
