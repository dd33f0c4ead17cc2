"""Which launch comes next, what a measurement is worth, and what it all amounts to."""
