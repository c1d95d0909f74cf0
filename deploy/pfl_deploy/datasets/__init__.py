"""Makes site folders from real data sets: what `pfl split` calls."""
