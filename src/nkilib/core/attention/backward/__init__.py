"""What gradients of attention are made of: operands, one step, and the order of the steps."""
