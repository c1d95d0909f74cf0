"""Code that the methods share: the SGD loop, and mathematics that several papers cite."""
