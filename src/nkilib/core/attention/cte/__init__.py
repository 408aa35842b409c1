"""What `attention_cte` is made of: operands, rules of sight, both ways to compute a block, results, and the order."""
