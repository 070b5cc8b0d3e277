"""Stiff and exponential solvers of ordinary differential equations; no loss and no model."""
