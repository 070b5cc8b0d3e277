"""Rank tracker for PyTorch models: layouts of attention, records, schedules, callbacks."""
