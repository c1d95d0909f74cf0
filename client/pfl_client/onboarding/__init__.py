"""A site's way in: its data checked, its certificate obtained."""
