"""Training of operators: samples and a recipe become a checkpoint with weights, config and card."""
