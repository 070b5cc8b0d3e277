"""Concept learning in a conditional diffusion model of images: the data, the model, and how it is trained and read.

Section 5 and appendix G of Yang et al. (2024). One file a matter: the circles and their signals, the positions of
images among the concepts, the classifier, the U-Net, the variational bound and its sampler, and the training.
"""
