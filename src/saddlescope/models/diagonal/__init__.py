"""Networks with diagonal weights: any h(x; u * v), the diagonal linear network, and networks given by weights."""
