"""`pfl doctor`: finds faults of this machine, its sites, a coordinator or a data folder, and says what to do."""
