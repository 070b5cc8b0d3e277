"""Transformers learn through gradual rank increase (Boix-Adserà, Littwin, Abbe, Bengio, Susskind 2023)."""

CITATION = (
    "Boix-Adserà, Littwin, Abbe, Bengio, Susskind: Transformers learn through gradual rank increase, NeurIPS 2023, "
    "arXiv:2306.07042"
)
