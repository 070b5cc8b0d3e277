"""Support vector machines of softmax attention, with solutions certified by duality."""

from saddlescope.theory.attention.svm.certificate import SvmCertificate, certify_svm
from saddlescope.theory.attention.svm.frobenius import frobenius_svm
from saddlescope.theory.attention.svm.l1 import l1_svm
from saddlescope.theory.attention.svm.nuclear import nuclear_svm
from saddlescope.theory.attention.svm.solution import DiagonalSvm, LocalSolution, MatrixSvm

__all__ = [
    "DiagonalSvm",
    "LocalSolution",
    "MatrixSvm",
    "SvmCertificate",
    "certify_svm",
    "frobenius_svm",
    "l1_svm",
    "nuclear_svm",
]
