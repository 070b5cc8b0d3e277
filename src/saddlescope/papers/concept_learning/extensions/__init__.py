"""Questions that go beyond the paper."""
