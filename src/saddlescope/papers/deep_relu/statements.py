"""The statements of the paper, the claims about them, and the errata."""

from saddlescope.reproduction.paper import Erratum, Statement

STATEMENTS = (
    Statement("Equation 1", "The loss is C(0) + Tr[∇C(0)ᵀY] to second order", uncovered="Taylor's formula."),
    Statement("Proposition A.1", "Norm and direction decouple", "proposition-2-2/decomposition"),
    Statement(
        "Section 2.1, norm and time in s",
        "|θ| and t are integrals of L₀ along the path",
        uncovered="They follow by integration (errata).",
    ),
    Statement(
        "Definition 2.1",
        "The fastest escape direction minimizes L₀ on the sphere of radius √L",
        uncovered="At a stationary point L₀(ρ) = ρ·∇L₀(ρ)/L = -s.",
    ),
    Statement(
        "Proposition 2.2, A.2",
        "The direction stays, and the norm grows by a closed law",
        "proposition-2-2/direction",
        "proposition-2-2/growth-printed",
    ),
    Statement("Section 2.2, outputs", "Outputs are at most (r/√L)^L |X|", "proposition-2-2/output-bound"),
    Statement(
        "Section 2.2, escape time",
        "The time to norm r has a closed form",
        uncovered="It is Proposition 2.2 solved for the time (errata).",
    ),
    Statement("Section 2.2, alignment", "Its time s is independent of the scale", "proposition-2-2/alignment"),
    Statement("Theorem 3.1, A.7", "Deep layers of an optimum are nearly rank one and linear", "theorem-3-1/holds"),
    Statement(
        "Proposition 3.2, A.3",
        "Deeper networks escape no slower",
        "proposition-3-2/not-slower",
        "proposition-3-2/not-falling",
    ),
    Statement("Proposition 3.3, A.5", "With inputs near rank one, so are all layers", "proposition-3-3/holds"),
    Statement(
        "Proposition 3.4, A.4", "Most layers of a fast network are near rank one", "proposition-3-4/proposition-3-4"
    ),
    Statement(
        "Section 3.3, Figures 1 and 3",
        "On MNIST one singular value dominates in the first plateau",
        "figure-1/saddles",
        "figure-1/dominant",
        "figure-1/deeper",
    ),
    Statement(
        "Section 3.3, Figure 1",
        "Towards the end a second singular value dominates",
        uncovered="`figure-1` asks more, s₃/s₂ at most half of s₂/s₁, as an extension; it is undecided.",
    ),
    Statement(
        "Example 1",
        "The optimal escape direction has rank two",
        "example-1/rank-one",
        "example-1/corrected-weights",
        "example-1/first-layer",
        "example-1/optimum",
    ),
    Statement("Figures 2 and 6", "Wider networks beat rank one more often", "figure-2/rises"),
    Statement(
        "Section 5, conjecture 1",
        "Large-width descent finds the optimum",
        "figure-2/conjecture-1",
        "figure-2/conjecture-1-harder",
    ),
    Statement(
        "Section 5, conjecture 2",
        "All but finitely many layers have rank one",
        "conjecture-2/none-faster",
        "conjecture-2/rank-one",
    ),
    Statement("Section 5, hypothesis 3", "Layers of rank one remain so", "conjecture-3/rank-one"),
    Statement(
        "Section 5, hypothesis 3, balance",
        "Balancedness is weak, strong where Z ≥ 0",
        "proposition-2-2/weak-balance",
        "proposition-2-2/only-weak",
    ),
    Statement(
        "Section 5, hypothesis 4", "The bottleneck rank rises gradually", "conjecture-4/by-one", "conjecture-4/stops"
    ),
    Statement(
        "Section 5, linear networks", "Saddles are best fits of rising rank", "deep-linear/stages", "deep-linear/levels"
    ),
    Statement("Section 5, Figure 4", "Plateaus are more distinct at depth 6", "figure-4/depth"),
    Statement("Lemma A.6", "Leading singular vectors are non-negative", "theorem-3-1/lemma-a-6"),
    Statement(
        "Section 5, after conjecture 2",
        "If s* no longer rises with depth, the later layers have rank one, and the converse",
        uncovered="Implications between unproved sentences; `theorem_3_1.py` proves the first for one output.",
    ),
    Statement(
        "Equations 3 to 5",
        "Steps of the proofs of Propositions A.4 and A.5",
        uncovered="Equation 3 is Proposition A.4; 4 and 5 are steps of its proof and of A.5, checked by reading.",
    ),
    Statement(
        "Appendix C.1, equation 6, Figure 5",
        "The speed of one neuron has a closed form",
        "figure-5/equation-6",
        "figure-5/where",
    ),
)

ERRATA = (
    Erratum(
        place="Proposition 2.2, A.2, escape time",
        printed="d|θ|/dt = L s |θ|^(L-1) and its solutions",
        right="d|θ|/dt = s L^(1-L/2) |θ|^(L-1); with r = |θ|/√L: r' = s r^(L-1), and e^(st) at L = 2",
        check="At ρ, |∇L₀| = s√L, but L s (√L)^(L-1) is L^(L/2) times that: 2, 5.2, 16, 4096 at L = 2, 3, 4, 8.",
        weight="statement",
    ),
    Erratum(
        place="Escape time, section 2.2",
        printed="[r₀^(2-L) + r^(2-L)]",
        right="r₀^(2-L) - r^(2-L)",
        check="It must vanish at r = r₀.",
    ),
    Erratum(
        place="Section 2.1, norm and time in s",
        printed="exp(-∫L₀ ds) and exp((L-2)∫L₀ ds)",
        right="exp(-L∫L₀ ds) and exp(L(L-2)∫L₀ ds)",
        check="The display before has d|θ|/ds = -L|θ|L₀.",
    ),
    Erratum(
        place="Section 2.1, s(t)",
        printed="∫₀ˢ |θ(s₁)|^(L-2) ds₁",
        right="∫₀ᵗ |θ(t₁)|^(L-2) dt₁",
        check="ds/dt = |θ|^(L-2) by the choice of the rate.",
    ),
    Erratum(
        place="Theorems 3.1 and A.7",
        printed="s* = min Tr[Gᵀf]",
        right="s* = -min Tr[Gᵀf]",
        check="s* > 0 by Definition 2.1.",
    ),
    Erratum(
        place="Example 1, equation 2",
        printed="W₃ = [1]",
        right="W₃ = [-1]",
        check="Σ Gⱼ f(xⱼ) = +1/2 as printed, a speed of -1/2.",
    ),
    Erratum(
        place="Section 1.3",
        printed="the first two weight matrices are rank 2",
        right="the first one is",
        check="W₂ of equation 2 has one row; section 4 says 'in the first layer'.",
    ),
    Erratum(
        place="Example 1, proof",
        printed="a network with only rank 1 layers can only represent one neuron functions",
        right="two neurons of opposite sign as well; the best of both is as fast",
        check="W₁ = [v; -v]/√2, W₂ = [1, 1]/√2 gives |v·x|/2. The speed is linear in the two coefficients.",
        weight="repairable",
    ),
    Erratum(
        place="Proposition 3.2",
        printed="a depth L network",
        right="of depth L ≥ 2",
        check="X = (1, -1), G = (-1, 1): f(x) = x, of depth 1, has speed 2. At depth 2, ac + bd ≤ |θ|²/2 = 1.",
        weight="repairable",
    ),
    Erratum(
        place="Theorem 3.1, A.7; Proposition 3.3, A.5",
        printed="for all layers ℓ; for all ε > 0 with the property",
        right="for ℓ > c²; for |G|ε < s*",
        check="Below, the bounds are negative: −8.2 at ℓ = 1 for Example 1, whose W_1 has rank 2.",
        weight="repairable",
    ),
    Erratum(
        place="A.3, proof",
        printed="Σ over i up to w_L",
        right="up to w_(L-1), the columns of W_L",
        check="W_L has w_(L-1) columns.",
    ),
    Erratum(
        place="Propositions 3.2 and A.3",
        printed="|θ̃|² = L + k",
        right="at most L + k, as the proof has it",
        check="2ab ≤ a² + b² is strict for a ≠ b. A larger norm only helps.",
    ),
    Erratum(
        place="Proposition 3.4, A.4",
        printed="at least (1-p)L layers, with activations",
        right="the input is one of them; of hidden layers, L - 1 - ⌊pL⌋",
        check="The product runs over l = 0..L-1, the sum over l = 1..L-1. At L = 2, p = 3/4: 0 instead of 1/2.",
        weight="repairable",
    ),
    Erratum(
        place="Theorem 3.1, proof in A.7",
        printed="W_l and Z_l at layer l",
        right="W_(l+1) and Z_(l+1)",
        check="It finds Zσ near rank one at some l₀ ≤ l and applies Proposition 3.3 to the layers after it.",
        weight="repairable",
    ),
    Erratum(
        place="A.5, lower bounds",
        printed="≥ -Tr[GᵀY(uvᵀ)] - |G|ε; -2/(|u||v|)",
        right="≥ Tr[GᵀY(uvᵀ)] - |G|ε; +2/(|u||v|)",
        check="(y - e)/(1 + e) = 1 - ((1 - y) + 2e)/(1 + e) with e = ε/(|u||v|).",
    ),
    Erratum(
        place="Lemma A.6, proof",
        printed="AᵀA u₁ = s₁u₁; A v₁ = s₁u₁",
        right="AᵀA u₁ = s₁²u₁; Aᵀv₁ = s₁u₁",
        check="A = 2: AᵀA = 4.",
    ),
)
