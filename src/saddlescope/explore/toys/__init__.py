"""Five small entries made for the live page: each answers a moved slider within a second."""
