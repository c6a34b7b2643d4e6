"""What requests other than predictions ask for, and how their responses are put together."""
