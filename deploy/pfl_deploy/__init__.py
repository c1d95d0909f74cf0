"""Whole federations: the package behind `pfl`."""
