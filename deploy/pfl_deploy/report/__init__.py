"""`pfl report`: one page about one run, from the coordinator's records and, where available, the sites' own."""
