"""What curious agents can reconstruct by linear algebra: how messages depend on noisy gradients."""
