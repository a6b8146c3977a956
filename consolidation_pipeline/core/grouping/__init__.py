"""Groups of similar rows: clustering methods, linkage, cohesion, representatives and cannot-link constraints."""
