"""`pfl compare`: several methods on one federation, settings chosen on validation data, several seeds."""
