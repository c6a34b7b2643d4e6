"""Parts of the networks of Cao (NeurIPS 2021) that no other network has, for its weights and its recipes."""
