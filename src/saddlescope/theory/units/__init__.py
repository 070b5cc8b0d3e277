"""Stages of networks that are sums of homogeneous units."""
