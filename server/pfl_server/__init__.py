"""The coordinator: picks sites, sends them tasks, collects their updates, sums them and keeps the result."""
