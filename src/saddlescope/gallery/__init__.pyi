from .data_page import build_attention as build_attention
from .data_page import build_spectra as build_spectra
from .data_page import build_training as build_training
from .site import build as build
