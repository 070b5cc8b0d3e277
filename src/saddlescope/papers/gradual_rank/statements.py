"""The statements of the paper, the claims about them, and the errata."""

from saddlescope.reproduction.paper import Erratum, Statement

STATEMENTS: tuple[Statement, ...] = (
    Statement("Theorem 1.1", "Learning proceeds in stages of time Θ(log(1/α))", uncovered="Theorem 4.1 formalises it."),
    Statement(
        "Section 1 and appendix B.2, Figures 1 and 14",
        "The difference between trained and initial weights has low rank, which grows gradually in training",
        "figure-1/narrow",
        "figure-1/widens",
    ),
    Statement(
        "Sections 1.1 and 6, LoRA",
        "Understanding incremental dynamics may explain and improve algorithms like LoRA",
        uncovered="The paper poses a question here; the extension lora-schedule tries one answer.",
    ),
    Statement(
        "Example 3.2",
        "Attention with diagonal weights depends on the products w_K w_Q and w_V w_O alone",
        "example-3-2/products",
    ),
    Statement(
        "Theorem 4.1",
        "As α vanishes, the weights between two stage times tend to the saddles of Algorithm 1",
        "theorem-4-1/weights-converge",
        "theorem-4-1/plateaus",
        "example-3-2/converges",
    ),
    Statement("Theorem 4.1, existence", "For small α there is a unique solution until t log(1/α)", "lemmas/existence"),
    Statement("Theorem 4.1, T = ∞", "After the last stage the weights stay at the last saddle", "diagonal-linear/flow"),
    Statement(
        "Theorem 4.1, support",
        "In each stage at most the coordinate i_k of Algorithm 1 enters the support",
        "theorem-4-1/order",
        "example-3-2/support",
    ),
    Statement(
        "Section 4, application",
        "In each stage the rank of at most one product of one head increases, by at most one",
        "tied-heads/at-most-one",
    ),
    Statement(
        "Figure 2 (a)",
        "The loss curves converge to a staircase; stages are visible at α = 0.01",
        "figure-2/loss-converges",
        "figure-2/one-percent",
    ),
    Statement(
        "Figure 2 (b)",
        "The rank of both products increases incrementally",
        "figure-2/order",
        "figure-2/times",
        "figure-2/support",
        "gradient-descent/sgd-order",
    ),
    Statement(
        "Figure 2 of version 1",
        "Full weights learn one direction at a time, as diagonal ones do in Figure 2",
        "figure-2-v1/one-by-one",
    ),
    Statement("Equation 4 and Assumption 2.1", "The flow of u and v", uncovered="A definition; our losses meet 2.1."),
    Statement("Lemma 4.2, equation 5", "Gradient flow conserves u² − v²", "lemma-4-2/conserved"),
    Statement(
        "Equations 6 and 7",
        "w = u + v grows at the rate g, and determines both weights",
        "lemma-4-2/equation-6",
        "lemma-4-2/equation-7",
    ),
    Statement("Equations 8 and 9", "On a plateau w grows as at its saddle", uncovered="Lemma C.6 formalises them."),
    Statement(
        "Equations 10 to 13",
        "The times, the winner, the log-scale and the next saddle of each stage",
        uncovered="They define Algorithm 1; that flows follow it is Theorem 4.1.",
    ),
    Statement(
        "Assumption 4.3",
        "One coordinate wins each stage, and those that leave have a nonzero gradient",
        "assumptions/unique",
        "assumptions/leaving",
    ),
    Statement(
        "Assumption 4.4",
        "Every saddle is a strict local minimum on its support",
        "assumptions/strict-minima",
        "figure-10/strict-minima",
    ),
    Statement(
        "Assumption 4.5", "Transitions from slightly noisy starts end at the next saddle", "assumptions/noise-robust"
    ),
    Statement("Figure 3", "The toy task meets Assumptions 4.4 and 4.5", uncovered="Figures 10 and 11 have its panels."),
    Statement(
        "Section 5, Figures 4 and 15",
        "The learned weight perturbation gradually increases in stable rank during training",
        "figure-4/rise",
        "rank-rise/rises-labels-KQ-stable",
        "rank-rise/rises-labels-VO-stable",
    ),
    Statement(
        "Section 5",
        "The learned weight perturbation is ultimately low-rank when compared to the initial spectrum",
        "figure-4/low",
    ),
    Statement(
        "Section 5, Figure 5",
        "On CIFAR-10 the learned perturbation of keys and queries is extremely low-rank in the end",
        "figure-4/spectrum-KQ",
    ),
    Statement(
        "Section 5, Figure 6",
        "Incremental dynamics are evident at all initial scales, more pronounced at smaller ones",
        uncovered="The figure shows single heads for the eye; the extension rank-steps counts steps of all heads.",
    ),
    Statement(
        "Section 5, Figure 7", "Smaller initialization scales lead to lower-rank attention heads", "figure-6/falls"
    ),
    Statement(
        "Section 6", "With exponential tails the weights may not converge to a finite value", "lemmas/tails-grow"
    ),
    Statement(
        "Appendix A",
        "No coordinate of the toy task ever leaves the support",
        uncovered="It is said of one instance, not published; in 3 of 10 drawn ones an entry leaves (`assumptions`).",
    ),
    Statement("Figures 8 and 9", "The trajectories of both products tend to a limiting trajectory", "figure-8/limit"),
    Statement(
        "Figure 10", "After noise, training brings the weights back", "figure-10/beta-returns", "figure-10/same-rest"
    ),
    Statement("Figure 11", "Transitions are robust to noise at their beginning", "figure-11/endpoint"),
    Statement(
        "Appendix B",
        "The gradual increase in stable rank leads to a low rank bias",
        "figure-12/low",
        "figure-13/low",
        "figure-16/low",
        "figure-18/low",
    ),
    Statement("Appendix B.1, Figure 12", "SGD shows similar gradual rank increase on CIFAR-10", "figure-12/rise"),
    Statement("Appendix B.1, Figure 13", "SGD shows similar gradual rank increase on CIFAR-100", "figure-13/rise"),
    Statement(
        "Appendix B.2, Figures 16 and 17",
        "The stable rank increases gradually on CIFAR-100 with Adam",
        "figure-16/rise",
    ),
    Statement(
        "Appendix B.2, Figures 18 and 19",
        "The stable rank increases gradually in ViT-B/16 on ImageNet",
        "figure-18/rise",
    ),
    Statement(
        "Appendix B.2, Figure 20",
        "In GPT-2 the stable rank increases gradually, but remains small throughout training",
        "figure-20/rise",
        "figure-20/low",
    ),
    Statement(
        "Assumptions C.1 to C.3, equations 14 to 26 and 30 to 39",
        "Restatements, and invariants of the induction",
        uncovered="Steps of the proof; Lemmas C.5 to C.10 are what they give.",
    ),
    Statement("Theorem C.4", "Theorem 4.1 in rescaled time", uncovered="It restates Theorem 4.1."),
    Statement("Lemma C.5", "On a plateau the weights stay near the saddle", "lemmas/c-5"),
    Statement(
        "Lemma C.6",
        "On a plateau log_α w is linear in time, and gradients keep their signs",
        "lemmas/c-6",
        "lemmas/c-6-signs",
    ),
    Statement("Lemmas C.7 and C.9, time", "A plateau ends near T_(k+1)", "lemmas/c-7"),
    Statement("Lemma C.8", "On a plateau all entries outside the support but the winner barely move", "lemmas/c-8"),
    Statement("Lemma C.9", "At the end of a plateau the winner has size ρ and the predicted sign", "lemmas/c-9"),
    Statement(
        "Lemma C.10",
        "A transition lasts O(1/log(1/α)), and changes each weight by a bounded factor",
        "lemmas/c-10",
        "lemmas/c-10-ratio",
    ),
    Statement("Lemma D.1", "log_α w in (c, 2 − c) makes both weights small", "lemmas/d-1"),
    Statement("Lemma D.2", "log_α w outside (−c, 2 + c) makes u larger than 1", "lemmas/d-2"),
    Statement("Lemma D.3", "log_α w above or below 1 gives the sign of v", "lemmas/d-3"),
    Statement("Lemma D.4", "Entries outside the support with b in {0, 2} have just left it", "lemmas/d-4"),
    Statement(
        "Lemmas D.5 and D.6",
        "ℓ and h are locally Lipschitz and smooth",
        uncovered="Of a C² function on a compact set some constant exists, which no finite sample can refute.",
    ),
    Statement(
        "Lemma D.7", "Loss, gradient and g are locally Lipschitz", uncovered="It follows from D.5 and D.6; see errata."
    ),
)

ERRATA: tuple[Erratum, ...] = (
    Erratum(
        place="Section 4, application to H heads",
        printed="in each stage at most one head gains at most one rank",
        right="with two or more heads in a layer they gain it together, in a ratio set by the initial weights",
        check="With all keys 0 each head attends to the mean token: equal gradients, so Assumption 4.3 fails on any "
        "data (`tied-heads/at-most-one`).",
        weight="statement",
    ),
    Erratum(
        place="Lemma C.10",
        printed="|θ(t)| / |θ(t_k)| in [1/C'', C'']",
        right="true of w = u + v; a weight v may pass 0, and the proof of the theorem uses the upper bound alone",
        check="L = (β₁ − 1)²/2 − 2 ln 4 · β₂ β₁ (1 − β₁) + β₂², (u₂, v₂)(0) = α (1, −0.6): w₂ grows from 0.4 α to "
        "1.6 α in the transition at T = 1, and v₂ = (w₂ − 0.64 α²/w₂)/2 is 0 at w₂ = 0.8 α (`lemmas/c-10-ratio`).",
        weight="statement",
    ),
    Erratum(
        place="Lemma D.4",
        printed="b_i in {0, 2} outside the support only where i was in the support of stage k − 1",
        right="also where i = i_(k−1) enters and leaves in one transition; Assumption 4.3 should ask for g_i ≠ 0 there",
        check="A made loss of two coordinates: β₂ enters at (1, 0), rises above 1, tips β₁ over to 3 and vanishes at "
        "log_α w₂ near 0 (`lemmas/d-4`).",
        weight="statement",
    ),
    Erratum(
        place="Appendix C.3",
        printed="train sgn(u) u and sgn(v) v",
        right="multiply both by sgn(u), and exchange u and v where |u| < |v|",
        check="From u = 1, v = −1/2 the printed signs make the product 1/2 of −1/2.",
        weight="repairable",
    ),
    Erratum(
        "Algorithm 1, line 1",
        "b⁰ = 0",
        "b⁰ = 1, as in equation 19 and appendix C.5",
        "With 0, equation 10 gives Δ₀(i) = 0 for every g_i > 0, against T₁ = min 1/|g_i(0)|.",
    ),
    Erratum(
        "Equation 13",
        "sgn(g_i(θ^k))",
        "sgn(g_(i_k)(θ^k))",
        "i is free; the entering coordinate's sign is that of equations 24 and 25.",
    ),
    Erratum(
        "Assumptions 4.4 and C.2",
        "L(ũ, s ũ) ≥ c |u − ũ|²",
        "L(ũ, s ũ) ≥ L(θ^k) + c |u − ũ|², as the proof of Lemma C.5 uses it",
        "As printed it holds near any point of positive loss: L = 1 + u at u = 1 with c = 1, δ = 1/2.",
    ),
    Erratum(
        "Theorem 4.1 and Assumption 4.5",
        "solutions with values in ℝ^p",
        "ℝ^(2p), as in Theorem C.4",
        "θ = (u, v) has 2p entries.",
    ),
    Erratum(
        "Appendix A, Assumption 4.3",
        "coordinates in supp(θ^k) \\ supp(θ^(k−1))",
        "supp(θ^(k−1)) \\ supp(θ^k), those that leave",
        "Assumption 4.3 itself.",
    ),
    Erratum("Lemma C.5, last line", "L is nondecreasing along the flow", "nonincreasing", "dL/dt = −|∇L|²."),
    Erratum(
        "Lemma C.6, equation 29",
        "equal signs for all i outside the support",
        "where g_i(θ^k) is not 0",
        "At the origin the gradient of keys and queries is 0, of sign 0, and not 0 afterwards.",
    ),
    Erratum(
        "Lemma C.7, proof",
        "assume t_(k+1) < T_(k+1) + ε",
        "assume ≥",
        "The contradiction at its end is the printed assumption.",
    ),
    Erratum(
        "Lemma C.8, proof, first case",
        "log_α w in (−c/2, 2 − c/2)",
        "(c/2, 2 − c/2)",
        "Lemma D.1, used next, needs a positive lower end.",
    ),
    Erratum("Lemma C.10", "the interval [t̄_k, t̄_k]", "from the lower to the upper t_k", "A point is no transition."),
    Erratum(
        "Lemma 4.2, proof",
        "d(u_i v_i)/dt with u_i v_i g_i",
        "2 u_i v_i g_i in the rate of u_i² and of v_i²",
        "d(u²)/dt = 2 u v g and d(v²)/dt = 2 u v g.",
    ),
    Erratum(
        "Lemma D.2, proof",
        "u > α^(−c) − α^(2−c/2) and the like, without a half",
        "half of each, still above 1 for small α",
        "w = u + v and w̃ = u − v, so u = (w + w̃)/2.",
    ),
    Erratum(
        "Lemma D.7",
        "for θ in B(0, K_R); K_θ",
        "B(0, R); K_R",
        "The gradient of (u v − 2)²/2 has no Lipschitz constant that is also the radius of its ball.",
    ),
    Erratum(
        "Figure 6",
        "eigenvalues of ΔW_K W_Qᵀ",
        "singular values",
        "The product is not symmetric: nine in ten of its eigenvalues at PyTorch's default are not real.",
    ),
)
