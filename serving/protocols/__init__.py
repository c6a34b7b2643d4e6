"""The protocols of other projects, each a translation between its messages and the predictions of the gateway."""
