"""Numerical methods that know no network: stiff and explicit solvers, interpolants, roots, the layout of pytrees."""
