"""The outer edge of all programs: settings, help, logs, errors as words."""
