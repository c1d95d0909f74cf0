"""File handling that several rooms share."""
