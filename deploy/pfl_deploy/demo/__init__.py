"""`pfl demo`: a federation of real processes on this machine, its baselines, and a report."""
