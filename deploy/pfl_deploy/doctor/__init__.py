"""`pfl doctor`: what is wrong with this machine, its sites, a coordinator or a data folder, and what to do about it."""
