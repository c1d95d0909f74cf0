"""An example of a package that brings pfl a network and a method of its own."""
