"""Grafana's dashboards and the table of metrics, made from what the code declares."""
