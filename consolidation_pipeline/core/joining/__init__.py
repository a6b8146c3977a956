"""How ``core.similarity`` finds all pairs: bounds that discard most, forms of the join, and the choice between them."""
