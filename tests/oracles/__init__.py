"""What tests compare the product with, and what nothing in the product needs."""
