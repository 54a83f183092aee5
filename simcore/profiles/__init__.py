"""The timing rules of each peer and of the native model, as data and small functions."""

from simcore.profiles import astra_sim_1, astra_sim_2, native  # noqa: F401 - each registers its profile
from simcore.profiles.profile import GraphRules, NetworkMode, Profile, Rule, profiles

__all__ = ["GraphRules", "NetworkMode", "Profile", "Rule", "profiles"]
