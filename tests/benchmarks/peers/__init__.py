"""The no-op workload, measured on other federated learning systems as they are deployed."""
