"""How ``core.clustering`` forms groups: linkages on the sparse graph, components, cohesion and representatives."""
