"""Questions about the escape of deep ReLU networks that go beyond the paper."""
