"""The four papers: one folder per paper, one module or package per figure, theorem or question."""
