"""Predictions for softmax attention: support vector machines, aligned flows, asymptotics, KKT residuals."""
