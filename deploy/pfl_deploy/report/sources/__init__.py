"""Where a report's numbers come from."""
