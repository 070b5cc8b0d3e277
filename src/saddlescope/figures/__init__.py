"""Figures as pure data: results describe their pictures with these records, and `saddlescope.plot` draws them."""
