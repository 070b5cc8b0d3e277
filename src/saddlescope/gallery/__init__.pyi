from .attention_page import build_attention as build_attention
from .site import build as build
from .spectra_page import build_spectra as build_spectra
from .spectra_page import build_training as build_training
