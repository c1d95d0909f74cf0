"""The site's daemon: its main loop, heartbeats and metrics."""
