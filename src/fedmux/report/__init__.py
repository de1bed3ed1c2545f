"""Charts and pages. Altair; pictures without a browser or a network."""
