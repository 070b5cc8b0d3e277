"""One path from a saddle to the next stationary point: its limits, its watch for saddles, and Newton's method."""
