"""What the paper asserts, with the claims that cover it, and its errata."""

from saddlescope.reproduction.paper import Erratum, Statement

STATEMENTS: tuple[Statement, ...] = ()

ERRATA: tuple[Erratum, ...] = ()
