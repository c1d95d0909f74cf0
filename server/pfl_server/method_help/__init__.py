"""The text behind `--list-methods` and `--explain`."""
