"""What an instruction is: operands, rules, body, and the record that everything passes on."""
