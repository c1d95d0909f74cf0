"""The site's line to its coordinator."""
