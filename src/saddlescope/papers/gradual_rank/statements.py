"""What the paper asserts, with the claims that cover it, and its errata."""

from saddlescope.reproduction.paper import Erratum, Statement

STATEMENTS: tuple[Statement, ...] = (
    Statement(
        place="Section 1 and appendix B.2, Figures 1 and 14",
        asserts="The difference between trained and initial weights has low rank, which grows gradually in training",
        claims=("figure-1/narrow", "figure-1/widens"),
    ),
    Statement(
        place="Sections 1.1 and 6, LoRA",
        asserts="Understanding incremental dynamics may explain and improve algorithms like LoRA",
        uncovered="The paper poses a question here; the extension lora-schedule tries one answer.",
    ),
    Statement(
        place="Section 5, Figures 4 and 15",
        asserts="The learned weight perturbation gradually increases in stable rank during training",
        claims=(
            "figure-4/rise",
            "rank-rise/rises-labels-KQ-stable",
            "rank-rise/rises-labels-VO-stable",
            "rank-rise/rises-small-KQ-stable",
            "rank-rise/rises-small-VO-stable",
        ),
    ),
    Statement(
        place="Section 5",
        asserts="The learned weight perturbation is ultimately low-rank when compared to the initial spectrum",
        claims=("figure-4/low", "figure-20/low"),
    ),
    Statement(
        place="Section 5, Figure 5",
        asserts="On CIFAR-10 the learned perturbation of keys and queries is extremely low-rank in the end",
        claims=("figure-4/spectrum-KQ",),
    ),
    Statement(
        place="Section 5, Figure 6",
        asserts="Incremental dynamics are evident at all initial scales, more pronounced at smaller ones",
        uncovered="The figure shows single heads for the eye; the extension rank-steps counts steps of all heads.",
    ),
    Statement(
        place="Section 5, Figure 7",
        asserts="Smaller initialization scales lead to lower-rank attention heads",
        claims=("figure-6/falls",),
    ),
    Statement(
        place="Appendix B",
        asserts="The gradual increase in stable rank leads to a low rank bias",
        claims=("figure-12/low", "figure-13/low", "figure-16/low", "figure-18/low"),
    ),
    Statement(
        place="Appendix B.1, Figure 12",
        asserts="SGD shows similar gradual rank increase on CIFAR-10",
        claims=("figure-12/rise",),
    ),
    Statement(
        place="Appendix B.1, Figure 13",
        asserts="SGD shows similar gradual rank increase on CIFAR-100",
        claims=("figure-13/rise",),
    ),
    Statement(
        place="Appendix B.2, Figures 16 and 17",
        asserts="The stable rank increases gradually on CIFAR-100 with Adam",
        claims=("figure-16/rise",),
    ),
    Statement(
        place="Appendix B.2, Figures 18 and 19",
        asserts="The stable rank increases gradually in ViT-B/16 on ImageNet",
        claims=("figure-18/rise",),
    ),
    Statement(
        place="Appendix B.2, Figure 20",
        asserts="In GPT-2 the stable rank increases gradually, but remains small throughout training",
        claims=("figure-20/rise", "figure-20/throughout"),
    ),
)

ERRATA: tuple[Erratum, ...] = ()
