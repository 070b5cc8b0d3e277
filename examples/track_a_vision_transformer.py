"""Track the ranks of a vision transformer's updates on handwritten digits, head by head; needs no download."""

# %% A small vision transformer and the digits that come with scikit-learn
import numpy as np
import torch

import saddlescope as ss
from saddlescope.plot import draw_matplotlib
from saddlescope.plot.rank_figures import stable_rank_figure
from saddlescope.training import ViT, ViTConfig, load

torch.manual_seed(0)
data = load("digits")
images = torch.from_numpy(data.train_images.astype(np.float32)) / float(data.train_images.max())
labels = torch.from_numpy(data.train_labels.astype(np.int64))
sizes = {"image_size": 8, "channels": 1, "patch": 2, "embedding": 32, "depth": 2, "heads": 2, "head_width": 16}
model = ViT(ViTConfig(**sizes, mlp_width=64))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

# %% Train with a tracker, which measures after steps 1, 2, 3, 4, 6, 9, ... and changes nothing
generator, losses = torch.Generator().manual_seed(1), []
with ss.RankTracker(model).watch(optimizer) as tracker:
    for _ in range(150):
        batch = torch.randint(len(images), (64,), generator=generator)
        loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
print(f"loss {losses[0]:.2f} at first, {losses[-1]:.2f} at the end")

# %% Print and plot the stable ranks
for step, ranks in zip(tracker.steps, tracker.stable_rank("VO").mean(axis=2), strict=True):
    print(f"step {step:4}: mean stable rank of the updates of W_V W_O^T, layer by layer: {ranks.round(2)}")
spectra = tracker.to_xarray()
draw_matplotlib(stable_rank_figure(spectra)).savefig("stable_rank.png", dpi=110)
