"""`pfl report`: one page about one run, from what the coordinator wrote down and what sites' owners lay beside it."""
