"""The page of a report, part by part."""
