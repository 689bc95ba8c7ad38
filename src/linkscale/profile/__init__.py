"""Calibrated parameters as values."""

from linkscale.profile.checked import OUTSIDE_SIGMA, Extent, outside
from linkscale.profile.shipped import shipped_profile
from linkscale.profile.values import AttentionCurve, Profile

__all__ = ["OUTSIDE_SIGMA", "AttentionCurve", "Extent", "Profile", "outside", "shipped_profile"]
