"""Graphs of networks: in ONNX and TorchScript, rollouts, refinements, and their equality."""
