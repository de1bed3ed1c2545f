"""Comparisons: what is compared, its folder, how its runs are scheduled, statistics over seeds."""
