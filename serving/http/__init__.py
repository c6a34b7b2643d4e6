"""The gateway over HTTP: routes, limits, errors, static files."""
