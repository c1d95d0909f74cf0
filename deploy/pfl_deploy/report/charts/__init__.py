"""Charts: what they show, and how they are drawn."""
