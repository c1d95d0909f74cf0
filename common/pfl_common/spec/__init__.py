"""The plain values that are agreed before a run and exchanged during it."""
