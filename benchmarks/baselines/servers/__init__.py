"""The servers that the gateway is compared with."""
