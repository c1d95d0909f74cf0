"""What may leave this site: the rules of `policy.toml`, which the daemon keeps whatever a coordinator asks."""
