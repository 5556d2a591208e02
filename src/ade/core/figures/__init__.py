"""Figures about tasks over time: what is counted, how it is kept small, and how it is told to others."""
