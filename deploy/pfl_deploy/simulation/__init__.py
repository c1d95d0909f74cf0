"""A federation inside one process, and real runs played again."""
