"""Attacks against a real federation on this machine, bounded in number and time, and the table of our answers."""
