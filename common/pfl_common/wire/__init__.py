"""Messages generated from proto/; never edited: proto/README.md says how to make them anew."""
