"""Predictions for softmax attention: support vector machines, aligned flows, KKT residuals."""
