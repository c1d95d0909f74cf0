"""Pages about the product itself, made from its code."""
