"""The code that coordinator and sites share; it imports neither of them."""
