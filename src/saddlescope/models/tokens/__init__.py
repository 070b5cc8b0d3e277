"""Token-selection data for one softmax attention head: data, generators, losses, assumptions, separability."""
