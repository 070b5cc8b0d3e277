"""The statements of the paper, the claims about them, and the errata."""

from saddlescope.reproduction.paper import Erratum, Statement

STATEMENTS: tuple[Statement, ...] = (
    Statement(
        "Theorem 1.1",
        "Gradient flow separates the optimal tokens and minimises the nuclear norm",
        uncovered="informal form of Theorems 4.1 and 5.1.",
    ),
    Statement(
        "Section 3.1, Assumption 1",
        "Gaussian data are separable if d is larger than L and n",
        uncovered="One line proves it from d ≥ n on: with independent queries, W z_i = y_i v separates.",
    ),
    Statement("Equations 1, 5 and 30", "Head, support vector machine, KKT conditions", uncovered="Definitions."),
    Statement(
        "Assumption 4",
        "Orthogonal pairs of tokens and aligned starts",
        uncovered="A condition of section 5, met by construction in `lemma-5-1` and `theorem-5-1`.",
    ),
    Statement("Assumption 2, remark", "The scores of other tokens may differ a little", "unequal-scores/perturbations"),
    Statement(
        "Lemma 4.1, equations 2 to 4",
        "Keys times queries and a difference of squares move alike",
        "lemma-4-1/equivalence",
    ),
    Statement(
        "Lemma 4.2",
        "The norm of diagonal weights tends to infinity",
        "lemma-4-2/as-printed",
        "lemma-4-2/with-diagonal-separability",
    ),
    Statement(
        "Theorem 4.1", "The limit of the direction of diagonal weights solves the ℓ1 problem", "theorem-4-1/theorem-4-1"
    ),
    Statement(
        "(C2), equations 32 to 34", "Under Assumption 3 the loss tends to its infimum", "assumption-3/sufficient"
    ),
    Statement(
        "Section 4.2",
        "W alone minimises the Frobenius norm, K Qᵀ the nuclear norm",
        uncovered="Theorem 4.1 has the diagonal case; beyond it `section-4-2` shows an extension.",
    ),
    Statement("Section 4.2", "Linear regression differs likewise", "section-4-2/linear-regression"),
    Statement("Section 4.2", "The nuclear norm encourages low rank", "section-4-2/low-rank"),
    Statement("Lemma 5.1, equation 7", "Gradient flow preserves alignment", "lemma-5-1/preserved"),
    Statement(
        "Theorem 5.1, equations 9 and 42",
        "The limit of the direction of aligned keys and queries solves the nuclear-norm problem",
        "theorem-5-1/theorem-5-1",
    ),
    Statement(
        "Appendix A.1, equations 10 to 18",
        "Gradients, and the velocities of both parametrisations",
        uncovered="derivatives; a test has them by automatic differentiation.",
    ),
    Statement(
        "Lemma A.1, equations 6, 19 to 26, 31",
        "The flow of diagonal weights in closed form",
        "lemma-a-1/closed-form",
        "lemma-a-1/speed",
    ),
    Statement("Equations 27 and 28", "The loss falls at least like the squared gradient", "lemma-a-1/equation-27"),
    Statement("Appendix A.4, equation 29", "The gradient tends to 0", "lemma-4-2/gradient-vanishes"),
    Statement(
        "Definition A.2, Theorem A.2",
        "Where MFCQ holds, limits of approximate KKT points are KKT points",
        uncovered="MFCQ holds by v = −β*; the theorem is of Dutta et al. (2013).",
    ),
    Statement("(C1) and (C3), equation 37", "The proof's ε, ε' and δ tend to 0", "kkt-residuals/conditions"),
    Statement(
        "Inequality 35",
        "φ is at most a multiple of the integral of attention",
        uncovered="true with another constant; see the errata.",
    ),
    Statement(
        "Inequality 36", "ln |β| is at least a multiple of the integrals of attention", "kkt-residuals/inequality-36"
    ),
    Statement(
        "Equations 8, 38 to 41, 43 and 44",
        "Sums over pairs of tokens are those of their projections",
        "theorem-5-1/equations-40-to-44",
    ),
    Statement(
        "Appendix A.7", "The singular values of each sample follow an equation of their own", "theorem-5-1/quadrature"
    ),
    Statement(
        "Equation 45",
        "The subdifferential of the nuclear norm by that of the ℓ1 norm",
        uncovered="a theorem of Watson (1992).",
    ),
)

ERRATA: tuple[Erratum, ...] = (
    Erratum(
        place="Lemma 4.2, Theorem 4.1",
        printed="Under Assumption 2 (and 1, which section 3.1 makes for the whole paper) the norm tends to infinity",
        right="Some diagonal W must separate the data, as the proof assumes; Theorem 4.1 needs it, too",
        check="Tokens (0, 1), the best, and (0, 0), query (1, 0): W = e₂e₁ᵀ separates them, but B = 0: β never moves. "
        "Best tokens (1, 1) and (−2, 1) of two samples, others (0, 0), query (1, 0), v = e₂: β₁ stops at −0.62, and "
        "the direction has a limit where the ℓ1 problem has no solution",
        weight="statement",
    ),
    Erratum(
        place="Appendix A.4",
        printed="∫ |∇L|² dt < ∞ gives lim |∇L| = 0, and so lim |β| = ∞",
        right="That gives lower and upper limit; but a path from |β| = R to 2R costs a fixed amount of loss",
        check="By hand",
        weight="repairable",
    ),
    Erratum(
        place="Equation 27",
        printed="dL/dt = −(2/n) ⟨∇L, √(β² + ω₀⁴) ⊙ ∇L⟩",
        right="2 in place of 2/n, since ∇L has a factor 1/n already; the inequality stays",
        check="For n = 2 in high precision",
    ),
    Erratum(
        place="Inequality 35",
        printed="exp(−γᵀσ) is at most 1",
        right="It is at most exp(−γ_nopt), above 1 for negative scores; only constants change",
        check="Scores 0 and four times −5 with even attention: φ grows e⁴/5 = 10.9 times as fast as the bound",
    ),
    Erratum(
        place="Definition 5.1, remark",
        printed="left eigenvectors of K (Q)",
        right="left singular vectors: K and Q need not be square",
        check="By hand",
    ),
    Erratum(
        place="Appendix A.6, end",
        printed="the rest of the columns of U_K(0) and U_Q(0) are the zero vectors",
        right="U_K and U_Q are orthogonal; singular values of other columns do not move",
        check="The gradient of the softmax loss at aligned weights",
    ),
    Erratum(
        place="Appendix A.7", printed="By Assumption 4 (iv)", right="(ii)", check="There is no (iv)", weight="slip"
    ),
    Erratum(
        place="Appendix A.7",
        printed="λ = 2 φ / (n ln μ)",
        right="λ = φ / ln μ, as in A.5: φ holds 2/n already",
        check="One sample with B = 1 has φ = arcsinh(μ / ω₀²), about ln μ, and λ = 1 at the solution",
    ),
    Erratum(
        place="Appendix A.7, subdifferential",
        printed="P_V E = 0",
        right="E P_V = 0",
        check="For W = e₁e₂ᵀ the printed form admits E = e₃e₂ᵀ, though |UVᵀ + E| = √2, and excludes e₂e₁ᵀ",
    ),
)
