"""What all programs share at their outer edge: settings, help, logs, errors as words."""
