"""The coordinator seen from outside: metrics, health, status page."""
