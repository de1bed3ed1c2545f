"""Comparisons: what is compared, the folder that holds it, and how its runs are scheduled."""
