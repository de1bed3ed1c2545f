"""The page behind `fedmux ui`: runs of a folder, live, on this machine only. It reads and never writes."""
