"""`pfl demo`: a whole federation as real processes on this machine, beside its yardsticks, told in one page."""
