"""The site's daemon: its loop, its signs of life, its metrics."""
