"""Calibrated parameters as values."""

from linkscale.profile.shipped import shipped_profile
from linkscale.profile.values import AttentionCurve, Profile

__all__ = ["AttentionCurve", "Profile", "shipped_profile"]
