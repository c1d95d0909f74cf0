"""Pages about the product, generated from its code."""
