"""Charts: their content, and two ways to draw them."""
