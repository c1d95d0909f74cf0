"""`pfl predict`, `evaluate` and `export`: a finished model used from the command line, offline."""
