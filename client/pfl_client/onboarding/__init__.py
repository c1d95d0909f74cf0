"""How a site gets in: its data looked at, its certificate asked for."""
