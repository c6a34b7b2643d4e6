"""Deployment: containers, manifests, alerts, and the proxy before several nodes."""
