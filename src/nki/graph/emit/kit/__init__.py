"""What emitters share: tiles, views, expressions on tiles, operands and results of products."""
