"""Whole federations put together; the package behind `pfl`."""
