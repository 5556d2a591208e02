"""Measurements of ADE beside its peers, in one run on one machine."""
