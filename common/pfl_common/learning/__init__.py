"""Plumbing that every method shares: the SGD loop, and mathematics that several papers cite."""
