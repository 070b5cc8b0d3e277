"""Gradient flow of sums of units from tiny initial scales."""
