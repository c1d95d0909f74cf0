"""Messages generated from proto/, never edited; proto/README.md says how to generate them again."""
