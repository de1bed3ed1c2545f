"""The papers' experiments, rerun: presets, what they measure, and the papers' figures beside ours."""
