"""Takes PDE samples and a recipe, gives a checkpoint: weights, config and a card of what was measured."""
