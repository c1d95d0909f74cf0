"""Grafana's dashboards and the table of metrics, generated from the declarations in the code."""
