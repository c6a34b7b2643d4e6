"""What a run writes while it goes on: its folder, its log, its progress."""
