"""What a training loop rests on: the order of samples, rates, processes, memory."""
