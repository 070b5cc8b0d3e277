"""What the paper asserts, with the claims that cover it, and its errata."""

from saddlescope.reproduction.paper import Erratum, Statement

STATEMENTS: tuple[Statement, ...] = (
    Statement(
        place="Section 2.1, equation 2.1",
        asserts="The loss is half the mean squared error over all samples of all clusters",
        uncovered="A definition; its index and the printed learning rate are errata.",
    ),
    Statement(
        place="Figure 2 (a, b)",
        asserts="Concepts with larger signal or larger diversity are learned first, and the contour shifts with either",
        claims=("figure-2/order", "figure-2/shift"),
    ),
    Statement(
        place="Section 3.1, conclusion",
        asserts="Generally speaking, the model prefers the direction of stronger signal and more diverse data",
        claims=("printed-conventions/order",),
    ),
    Statement(
        place="Section 3.2",
        asserts="With σ = (.05, .05) the output requires many more time to approach the test point than with (2, .05)",
        claims=("figure-2/late",),
    ),
    Statement(
        place="Section 3.2, slowing down",
        asserts="In the later phase of training the dynamics slow down",
        uncovered="Any network that converges slows down; `figure-2/late` and Figure 6 (c) ask how.",
    ),
    Statement(
        place="Section 3.3, Figures 2 (c) and 3, transient memorization",
        asserts="The output turns toward the training cluster of the strongest signal, and then generalizes",
        claims=("figure-3/memorizing",),
    ),
    Statement(
        place="Section 3.3, Figure 2 (c), dimension",
        asserts="The lower the dimensionality, the stronger is transient memorization",
        claims=("figure-3/dimension", "width/dimension"),
    ),
    Statement(
        place="Section 3.3, Figure 3, high dimension",
        asserts="In the high dimensional setting the loss does not exhibit non-monotonic behavior",
        claims=("printed-conventions/high",),
    ),
    Statement(
        place="Section 4, transient memorization of one layer",
        asserts="One-layer models fail to reproduce transient memorization",
        claims=("figure-2/one-descent",),
    ),
    Statement(
        place="Section 5, Figure 6 (a), speed and order",
        asserts="The concept signal determines speed and order of generalization, and can reverse the order",
        claims=("figure-6/speed", "figure-6/reversal"),
    ),
    Statement(
        place="Section 5, Figure 6 (a), bend",
        asserts="The trajectory bends towards the concept with the stronger signal, and the bend is transient",
        claims=("figure-6/bend", "figure-6/memorizing", "figure-6/transient"),
    ),
    Statement(
        place="Section 5, Figure 6 (b)",
        asserts="The concept space MSE has a phase where it increases before it falls for good",
        claims=("figure-6/rise",),
    ),
    Statement(
        place="Section 5, Figure 6 (c)",
        asserts="The speed of generalization decelerates at an exponential rate",
        claims=("figure-6/exponential-approach",),
    ),
    Statement(
        place="Appendix B, equation B.2",
        asserts="The loss of a test point is at most that of any point that combines all its concepts and more",
        claims=("figure-7/strictly",),
    ),
    Statement(
        place="Appendix B, Figure 7",
        asserts="A test point is only learned after all of its predecessors are learned",
        claims=("figure-7/order",),
    ),
    Statement(
        place="Appendix E.1, captions of Figures 5, 8 and 9",
        asserts="The loss of the models shown descends two, three and four times",
        claims=("authors-scripts/programs-descents",),
    ),
    Statement(
        place="Appendix E.2, equation E.1",
        asserts="At a Gaussian start the diagonal entries of W have mean d'τ², and the others mean 0",
        claims=("width/equation-e-1",),
    ),
    Statement(
        place="Appendix E.2",
        asserts="Transient memorization is less significant when d' is large",
        claims=("width/wide",),
    ),
    Statement(
        place="Appendix F.1",
        asserts="5000 samples per cluster, SGD with batch 128 and learning rate 0.1, 40 epochs, width 64",
        uncovered="The settings of the entries; an erratum has what the learning rate needs.",
    ),
    Statement(
        place="Appendix F.2, Figure 11",
        asserts="Two-layer linear models keep the overall trends of sections 3.1 and 3.2",
        claims=("figure-11/order", "figure-11/shift"),
    ),
    Statement(
        place="Appendix F.2, Figure 12",
        asserts="Two-layer ReLU models keep the overall trends of sections 3.1 and 3.2",
        claims=("figure-12/order", "figure-12/shift"),
    ),
    Statement(
        place="Appendix F.2, Figures 13 and 14",
        asserts="Models with more layers and fewer input dimensions are easier to have transient memorization",
        claims=("figure-13/easier", "figure-3/deeper", "figure-13/memorizing"),
    ),
    Statement(
        place="Appendix F.2, Figure 14",
        asserts="The loss falls sooner with large signals than with small ones",
        claims=("figure-13/sooner",),
    ),
    Statement(
        place="Appendix G.1, Figure 15",
        asserts="One distribution has the stronger signal in colour, the other in size, and both can be controlled",
        claims=("figure-15/stronger",),
    ),
    Statement(
        place="Appendix G.2",
        asserts="A conditional U-Net is trained as a variational diffusion model, and sampled in 100 steps",
        uncovered="The settings of `figure-6`; the model is compared with independent implementations in the tests.",
    ),
    Statement(
        place="Appendix G.3",
        asserts="The classifier achieves 100 % accuracy on a held out test set",
        claims=("appendix-g/classifier",),
    ),
)

ERRATA: tuple[Erratum, ...] = (
    Erratum(
        place="Equation 2.1",
        printed="x_k^(s) in both terms of the sum over p",
        right="x_k^(p)",
        check="Section 2.1 defines the training set as the union over p of the x_k^(p).",
        weight="slip",
    ),
    Erratum(
        place="Equation 2.1 with appendix F.1",
        printed="A squared norm, summed over dimensions, with learning rate 0.1",
        right="A mean over dimensions, as in the authors' program",
        check="A minimum of L linear layers has a sharpness of at least L a_p along concept p. In Figure 13 (right) "
        "0.1 × 3 × (0.05² + 4²/2) = 2.4 is above 2: gradient descent on equation 2.1 settles at no minimum.",
        weight="slip",
    ),
    Erratum(
        place="Section 3.2",
        printed="the trajectory with the lower concept signal (i.e. σ = (0.05, 0.05))",
        right="with the lower diversity",
        check="Section 3.1 calls μ the signal and σ the diversity; the two trajectories have the same μ.",
        weight="slip",
    ),
    Erratum(
        place="Appendix B, above equation B.2",
        printed="u ⪯ v if and only if u_i ≤ v_i for all i ∈ [n]",
        right="i ∈ [s]",
        check="The indices are in {0, 1}^s; n is the number of samples of a cluster.",
        weight="slip",
    ),
    Erratum(
        place="Equation B.2",
        printed="The order strictly follows: u ⪯ v implies ℓ(u) ≤ ℓ(v)",
        right="The order follows up to a few percent of the largest loss at the start",
        check="At epoch 3 the network of seed 1000 in `figure-7` has ℓ(1000) = 0.731 and ℓ(1010) = 0.698; at epoch 3 "
        "or 5, 20 of 24 networks in the program's conventions and all 24 in the text's have such a pair.",
        weight="statement",
    ),
    Erratum(
        place="Appendix E.2, below equation E.1",
        printed="when d' is small, the variance of w_ij will be large",
        right="large relative to the square of the diagonal entries: Var w_ij = d'τ⁴ itself grows with d'",
        check="w_ij is a sum of d' independent products of variance τ⁴; (d'τ²)² over it is d'.",
        weight="slip",
    ),
    Erratum(
        place="Appendix F.2",
        printed="In Fig. 14, we present the output trajectory",
        right="In Fig. 13",
        check="The caption of Figure 13 has the output trajectory, that of Figure 14 the loss curve.",
        weight="slip",
    ),
)
