"""Find the norm that softmax attention minimises on your data (Sheen et al.)."""

# %% Five sequences of four tokens with their queries, labels, and a fixed linear head
import numpy as np

import saddlescope as ss

rng = np.random.default_rng(0)
X, z = rng.standard_normal((5, 4, 10)), rng.standard_normal((5, 10))
y, v = np.sign(rng.standard_normal(5)), rng.standard_normal(10)
data = ss.TokenData(X, z, y, v)

# %% Three support vector machines with certificates, three gradient flows to ln t = 1e6
answer = ss.implicit_bias(data)
print(answer)

# %% The verdict on each flow
for flow, verdict in answer.verdicts.items():
    print(f"{flow}: {verdict.norm}")
