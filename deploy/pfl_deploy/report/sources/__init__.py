"""The sources of a report's numbers."""
