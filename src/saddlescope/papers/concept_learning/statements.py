"""The statements of the paper, the claims about them, and the errata."""

from saddlescope.reproduction.paper import Erratum, Statement

STATEMENTS: tuple[Statement, ...] = (
    Statement(
        "Figure 1",
        "Concept space in pictures, with the swing of the output towards a training cluster",
        uncovered="A sketch; Figures 2 (c) and 5 are its measurements.",
    ),
    Statement(
        "Section 2.1",
        "The loss of a small cluster is near the loss at its mean",
        uncovered="The text says it of σ to 0, where it is continuity.",
    ),
    Statement("Equations B.1, C.7", "The order of points, and the second moment A", uncovered="Definitions."),
    Statement(
        "Section 2.1, equation 2.1",
        "The loss is half the mean squared error over all samples of all clusters",
        uncovered="A definition; its index and the printed learning rate are errata.",
    ),
    Statement(
        "Section 3.1, diversity",
        "With more diverse data, the model generalizes better",
        uncovered="A hypothesis of other papers; `figure-2/shift` tests the order that section 3.1 concludes.",
    ),
    Statement(
        "Figure 2 (a, b)",
        "Concepts with larger signal or larger diversity are learned first, and the contour shifts with either",
        "figure-2/shift",
    ),
    Statement(
        "Section 3.1, conclusion",
        "Generally speaking, the model prefers the direction of stronger signal and more diverse data",
        "printed-conventions/order",
    ),
    Statement(
        "Section 3.2",
        "With σ = (.05, .05) the output requires many more time to approach the test point than with (2, .05)",
        "figure-2/late",
    ),
    Statement(
        "Section 3.2, slowing down",
        "In the later phase of training the dynamics slow down",
        uncovered="Any network that converges slows down; `figure-2/late` and Figure 6 (c) ask how.",
    ),
    Statement(
        "Section 3.3, Figures 2 (c) and 3, transient memorization",
        "The output turns toward the training cluster of the strongest signal, and then generalizes",
        "figure-3/memorizing",
    ),
    Statement(
        "Section 3.3, Figure 2 (c), dimension",
        "The lower the dimensionality, the stronger is transient memorization",
        "figure-3/dimension",
    ),
    Statement(
        "Section 3.3, Figure 3, high dimension",
        "In the high dimensional setting the loss does not exhibit non-monotonic behavior",
        "printed-conventions/high",
    ),
    Statement(
        "Section 4, transient memorization of one layer",
        "One-layer models fail to reproduce transient memorization",
        "figure-2/one-descent",
    ),
    Statement(
        "Equations 4.1, C.1 to C.6",
        "The loss of a linear model is half the squared norm of (W − I) times the root of A",
        uncovered="An identity, which a test compares with the mean over samples.",
    ),
    Statement(
        "Theorem 4.1, equations 4.2, C.14 to C.21",
        "The output of the one-layer model is a growth term and a noise term in closed form",
        "theorem-4-1/at-the-test-point",
    ),
    Statement(
        "Section 4.1, (i) to (iii)",
        "The growth term converges to the target, the noise to 0, at exponential rates, and below a bound",
        uncovered="Read off the formula; the bound of (iii) lacks absolute values, an erratum.",
    ),
    Statement("Section 4.1, order", "The direction with the larger a_k converges faster", "order-flip/one-layer"),
    Statement(
        "Section 4.1, limitation",
        "The one-layer model has a monotonic output trajectory",
        "theorem-4-1/monotone-default",
    ),
    Statement(
        "Section 4.2, noise", "The noise term is never too large, and may be omitted", "equation-4-3/noise-omitted"
    ),
    Statement(
        "Section 4.2.1 and Figure 4, irrelevant entries",
        "The irrelevant entries do not contribute to the output at the test point",
        uncovered="True by construction, since the test point is 0 along their directions.",
    ),
    Statement(
        "Section 4.2.1, initial growth",
        "Every entry grows with the speed a_i + a_j, faster than those below it or to its right",
        "figure-4/initial-growth",
        "figure-4/faster-most",
    ),
    Statement(
        "Section 4.2.1, first suppression",
        "When a_1 and a_2 differ enough, the first major entry suppresses the minor entries of its group",
        "figure-4/groups",
    ),
    Statement(
        "Section 4.2.1, second growth and cycle",
        "The major entries grow one after the other, in the order of their strengths",
        "assumptions/order",
    ),
    Statement(
        "Section 4.2.1, slow down and stop",
        "A major entry slows down and stops at 1",
        uncovered="Lemmas D.5 and D.6 are its formal statement.",
    ),
    Statement(
        "Section 4.2.2, order",
        "Directions with larger strengths are learned first",
        "figure-8/order",
        "figure-9/order",
        "order-flip/two-layers",
    ),
    Statement(
        "Section 4.2.2, transient memorization",
        "Positive minor entries lower the loss; their suppression raises it and turns the output back",
        "figure-5/rise",
        "figure-5/reversal-often",
        "figure-5/by-sign",
    ),
    Statement("Figure 5", "From a positive start the loss descends twice", "figure-5/two-descents"),
    Statement(
        "Equations 4.3, D.2 to D.6",
        "Growth, suppression and noise are the gradient flow of each entry of W",
        uncovered="Half of it, an erratum; a test compares twice the sum with automatic differentiation.",
    ),
    Statement(
        "Section 5, Figure 6 (a), speed and order",
        "The concept signal determines speed and order of generalization, and can reverse the order",
        "figure-6/speed",
        "figure-6/reversal",
    ),
    Statement(
        "Section 5, Figure 6 (a), bend",
        "The trajectory bends towards the concept with the stronger signal, and the bend is transient",
        "figure-6/bend",
        "figure-6/memorizing",
        "figure-6/transient",
    ),
    Statement(
        "Section 5, Figure 6 (b)",
        "The concept space MSE has a phase where it increases before it falls for good",
        "figure-6/rise",
    ),
    Statement(
        "Section 5, Figure 6 (c)",
        "The speed of generalization decelerates at an exponential rate",
        "figure-6/exponential-approach",
    ),
    Statement("Appendix A", "Related work", uncovered="It reports the statements of others."),
    Statement(
        "Appendix B, equation B.2",
        "The loss of a test point is at most that of any point that combines all its concepts and more",
        uncovered="An observation on one network, which is not published; figure-7/strictly counts exceptions of ours.",
    ),
    Statement(
        "Appendix B, Figure 7",
        "A test point is only learned after all of its predecessors are learned",
        "figure-7/order",
    ),
    Statement(
        "Equations C.8 to C.13",
        "The second moment A of the data becomes diagonal as the samples grow",
        "theorem-4-1/moments",
    ),
    Statement(
        "Appendix D.1, Assumption D.5",
        "The assumptions all commonly hold in the practice: two strengths differ by more than a factor of 3",
        "assumptions/in-practice",
    ),
    Statement(
        "Appendix D.1, Assumptions D.1 to D.4",
        "They commonly hold in the practice, too",
        uncovered="D.1 to D.4 bound free constants (P, K, κ, ω); `lemmas` chooses them so that all hold at once.",
    ),
    Statement("Equation D.1", "It is equation 4.1 in the notation of the appendix", uncovered="A restatement."),
    Statement("Corollary D.1", "The noise of every entry is bounded", "lemmas/corollary-d1"),
    Statement("Lemma D.1", "Upper bounded growth", "lemmas/d1"),
    Statement("Lemma D.2", "Lower bounded initial growth", "lemmas/d2"),
    Statement("Corollary D.2", "Upper bounded diagonal update", "lemmas/corollary-d2"),
    Statement("Lemma D.3", "Lower bounded initial growth for diagonal entries", "lemmas/d3"),
    Statement("Lemma D.4", "Lower bounded after-initial growth for diagonal entries", "lemmas/d4"),
    Statement("Lemma D.5", "Upper bounded diagonal entry", "lemmas/d5"),
    Statement("Lemma D.6", "A diagonal entry that is near 1 stays there", "lemmas/d6"),
    Statement("Lemma D.7", "Suppression", "lemmas/d7"),
    Statement("Lemma D.8, Assertion D.1", "Minor entries stay in the initial phase", "lemmas/d8"),
    Statement(
        "Appendix E.1, multiple descents",
        "Multiple descents are possible, but only with a subtle choice of signals and start",
        "descents/multiple",
        "descents/subtle",
    ),
    Statement(
        "Appendix E.1, w_12 in Figure 9",
        "w_12 starts to decay after w_22 is close to 1",
        uncovered="No level is printed; equation 4.3 without noise gives about 3/4, and the authors' run 0.74.",
    ),
    Statement(
        "Appendix E.1, captions of Figures 5, 8 and 9",
        "The loss of the models shown descends two, three and four times",
        uncovered="The claims of these figures count the descents of the authors' models.",
    ),
    Statement(
        "Figure 8",
        "The loss descends three times, in stages of growth and suppression",
        "figure-8/authors-descents",
        "figure-8/descents",
        "figure-8/stages",
        "figure-8/learned-after-suppression",
    ),
    Statement(
        "Figure 9",
        "The loss descends four times, in stages of growth and suppression",
        "figure-9/authors-descents",
        "figure-9/descents",
        "figure-9/stages",
        "figure-9/learned-after-suppression",
    ),
    Statement("Appendix E.2", "Transient memorization is less significant in high dimension and width", "atlas/wide"),
    Statement(
        "Appendix E.2, equation E.1",
        "At a Gaussian start the diagonal entries of W have mean d'τ², and the others mean 0",
        uncovered="An identity, linearity of the expectation.",
    ),
    Statement(
        "Appendix E.3 and Figure 10",
        "A major entry may be suppressed before it starts to grow, and never grow",
        "figure-10/suppressed-first",
        "figure-10/never",
    ),
    Statement(
        "Appendix E.4",
        "Neurons of ReLU networks align early, and make the model behave like a linear one",
        uncovered="Future directions, recalled from other papers; `early-alignment` tests it on this task.",
    ),
    Statement(
        "Appendix F.1",
        "5000 samples per cluster, SGD with batch 128 and learning rate 0.1, 40 epochs, width 64",
        uncovered="The settings of the entries; an erratum has what the learning rate needs.",
    ),
    Statement(
        "Appendix F.2, Figure 11",
        "Two-layer linear models keep the overall trends of sections 3.1 and 3.2",
        "figure-11/shift",
    ),
    Statement(
        "Appendix F.2, Figure 12",
        "Two-layer ReLU models keep the overall trends of sections 3.1 and 3.2",
        "figure-12/shift",
    ),
    Statement(
        "Appendix F.2, Figures 13 and 14",
        "Models with more layers and fewer input dimensions are easier to have transient memorization",
        "figure-13/easier",
        "figure-3/deeper",
        "figure-13/memorizing",
    ),
    Statement(
        "Appendix F.2, Figure 14",
        "The loss falls sooner with large signals than with small ones",
        uncovered="No sentence of the text says so; figure-13/sooner has the factor of the panels.",
    ),
    Statement(
        "Appendix G.1, Figure 15",
        "One distribution has the stronger signal in colour, the other in size, and both can be controlled",
        "figure-15/stronger",
    ),
    Statement(
        "Appendix G.2",
        "A conditional U-Net is trained as a variational diffusion model, and sampled in 100 steps",
        uncovered="The settings of `figure-6`; the model is compared with independent implementations in the tests.",
    ),
    Statement("Appendix G.3", "The classifier achieves 100 % accuracy on a held out test set", "appendix-g/classifier"),
)

ERRATA: tuple[Erratum, ...] = (
    Erratum(
        place="Equation 2.1",
        printed="x_k^(s) in both terms of the sum over p",
        right="x_k^(p)",
        check="Section 2.1 defines the training set as the union over p of the x_k^(p).",
    ),
    Erratum(
        place="Equation 2.1 with appendix F.1",
        printed="A squared norm, summed over dimensions, with learning rate 0.1",
        right="A mean over dimensions, as in the authors' program",
        check="A minimum of L linear layers has a sharpness of at least L a_p along concept p. In Figure 13 (right) "
        "0.1 × 3 × (0.05² + 4²/2) = 2.4 is above 2: gradient descent on equation 2.1 settles at no minimum.",
        weight="repairable",
    ),
    Erratum(
        place="Section 3.2",
        printed="the trajectory with the lower concept signal (i.e. σ = (0.05, 0.05))",
        right="with the lower diversity",
        check="Section 3.1 calls μ the signal and σ the diversity; the two trajectories have the same μ.",
    ),
    Erratum(
        place="Theorem 4.1, C.21",
        printed="the noise is summed over i from 1 to s, for any z",
        right="over i from 1 to d; both agree at the test point",
        check="d = 2, s = 1, z = (0, 1), w_12(0) = 1: f_1 stays 1, the printed sum is 0",
    ),
    Erratum(
        place="Section 4.1, (iii)",
        printed="the noise term is at most Σ_i w_ki(0) μ_i",
        right="its absolute value is at most Σ_i |w_ki(0)| μ_i",
        check="s = 1, w_11(0) = −1: −exp(−a t) μ is above −μ at every t > 0",
    ),
    Erratum(
        place="Sections 4.2.1, D and E",
        printed="strengths in descending order in 4.2.1, in ascending order in appendices D and E",
        right="one of both",
        check="D.5 has a_i > 3 a_j for i > j",
    ),
    Erratum(
        place="Section 4.2.2",
        printed="f_k is dominated by w_k1 μ_k, and grows towards 1",
        right="w_k1 μ_1, towards μ_k",
        check="f_k = Σ_p w_kp μ_p, two displays earlier",
    ),
    Erratum(
        place="Equation 4.3, D.2",
        printed="dw_ij/dt = G_ij − S_ij − N_ij",
        right="twice that, as in D.1; times of the theory are twice those of gradient flow of equation 4.1",
        check="d = 1: U = u, loss a(u² − 1)²/2, so dw/dt = 2u du/dt = 4a w(1 − w); printed is 2a w(1 − w)",
    ),
    Erratum(
        place="Appendix B, above equation B.2",
        printed="u ⪯ v if and only if u_i ≤ v_i for all i ∈ [n]",
        right="i ∈ [s]",
        check="The indices are in {0, 1}^s; n is the number of samples of a cluster.",
    ),
    Erratum(
        place="Assumption D.1",
        printed="α ≤ a_k for all k, with α > 0",
        right="for k ≤ s; the lemmas are about these entries",
        check="a_k = 0 for k > s by the definition of A, so the printed one forbids d > s",
        weight="repairable",
    ),
    Erratum(
        place="Equations D.1 and D.2",
        printed="W of the iteration is U Uᵀ",
        right="a gradient step in U adds η² g gᵀ, g the gradient; without it W need not stay positive semidefinite",
        check="(U − ηg)(U − ηg)ᵀ = U Uᵀ − η(g Uᵀ + U gᵀ) + η² g gᵀ",
        weight="repairable",
    ),
    Erratum(
        place="Corollary D.1",
        printed="|N_ij| ≤ 2Pγαdβ²ω²",
        right="P² for P: a product of two entries of the initial phase is at most (Pβω)². D.4 then needs P² as well, "
        "and no start meets D.4 and D.5 for two or more concepts",
        check="two concepts of ratio 10, largest start: N_22 = w_12²(a_1 + a_2) exceeds the printed bound by e^20 and "
        "more where w_12 peaks",
        weight="statement",
    ),
    Erratum(
        place="Lemma D.3",
        printed="until T_1 of its own each w_ii grows at least as exp(2ηta_i/κ)",
        right="of the Schur complement of w_ii(0), not of w_ii(0), once a stronger concept is learned",
        check="a = (0.1, 1), W(0) = ω(1, c; c, 1), c = 0.95: w_11 falls to 1 − c² = 0.1 of its growth when w_22 is "
        "learned; the lemma allows 0.24",
        weight="statement",
    ),
    Erratum(
        place="Proof of Lemma D.4, D.45",
        printed="exp[2η(t + 1)κ⁻¹(1 − λ)]",
        right="with the factor a_i of D.44",
        check="D.44 times D.35",
    ),
    Erratum(
        place="Lemma D.5",
        printed="0 ≤ w_ii(t), since W(t) is positive semidefinite",
        right="true of gradient flow and of gradient steps in U, not of the map D.2 of the lemma; so is the time t* "
        "in the proof of D.8",
        check="to first order in W a step of D.2 multiplies w_11 w_22 / w_12² by "
        "1 − (η(a_2 − a_1) / (1 + η(a_1 + a_2)))². Then D.1, D.4, D.6 to D.8 and Corollary D.2 fail, later in the run",
        weight="statement",
    ),
    Erratum(
        place="Proof of Lemma D.5", printed="K ≤ 10", right="K ≥ 20, Assumption D.2", check="1 + 2/K ≤ 2 needs K ≥ 2"
    ),
    Erratum(
        place="Proof of Lemma D.7, D.60",
        printed="≤ −ωα/C",
        right="≤ −ωα/(5C); D.63 then needs κ ≤ 1 + K/(10C) in D.4",
        check="(3a_j − a_i)/5 ≤ −α/(5C) by D.5",
        weight="repairable",
    ),
    Erratum(
        place="Proof of Lemma D.8",
        printed="w_ii(t_0) ≥ Pβω by Lemma D.3",
        right="the upper bound of Lemma D.1 reaches Pβω at t_0, the lower one at κ² t_0",
        check="w_ii(0) exp(2ηt_0 a_i/κ) = w_ii(0)^(1 − 1/κ²) (Pβω)^(1/κ²) < Pβω",
        weight="repairable",
    ),
    Erratum(
        place="Proof of Lemma D.8, D.74 and D.75",
        printed="w_ii(t*) ≥ w_ii(0) exp(0.3ηt*a_i/κ) ≥ Pβω exp(log(0.8/(Pβω)))",
        right="w_ii(t_0) exp(0.3η(t* − t_0)a_i/κ), as in D.72",
        check="w_ii(0) < Pβω, so the printed second step is not implied",
    ),
    Erratum(
        place="Figures 5, 8, 9 and 10",
        printed="equation D.2 with A",
        right="the authors' programs have A² for A, which makes more descents visible and the weakest concept slower",
        check="from their starts A² gives two, three, four and two descents, A one, one, two and two",
        weight="repairable",
    ),
    Erratum(
        place="Captions of Figures 8 and 9",
        printed="μ = (1, 1.5, 2.2), σ = 0.05; and σ = (0.05, 0.05, 0.05, 0.5)",
        right="their programs have μ = (1, 1.7, 2.25), σ = (0.5, 0.25, 0.25); and σ = 0.05 for all four",
        check="figure/triple/triple.py and multiple.py of the authors' code",
    ),
    Erratum(
        place="Appendix E.2, below equation E.1",
        printed="when d' is small, the variance of w_ij will be large",
        right="large relative to the square of the diagonal entries: Var w_ij = d'τ⁴ itself grows with d'",
        check="w_ij is a sum of d' independent products of variance τ⁴; (d'τ²)² over it is d'.",
    ),
    Erratum(
        place="Appendix F.2",
        printed="In Fig. 14, we present the output trajectory",
        right="In Fig. 13",
        check="The caption of Figure 13 has the output trajectory, that of Figure 14 the loss curve.",
    ),
)
