"""Measurements, as ratios side by side."""
