"""Commands for the operator of a coordinator, and for a site's own list of what left it."""
