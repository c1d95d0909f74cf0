"""The coordinator as one looks at it: metrics, health, status page."""
