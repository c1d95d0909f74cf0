"""What `--list-methods` and `--explain` say of a method."""
