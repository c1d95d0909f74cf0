"""What is decided from plain values: no clock, no socket, no tensor."""
