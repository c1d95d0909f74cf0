"""Files on disk that several rooms handle alike."""
