"""What an operator asks a coordinator, and what a site's people ask its list of what left."""
