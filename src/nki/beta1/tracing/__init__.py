"""How values become instructions: destinations, masks, and the programs of a grid."""
