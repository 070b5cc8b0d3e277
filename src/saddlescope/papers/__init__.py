"""Four papers, one folder each, and stages across architectures, `beyond`; a module or package per question."""
