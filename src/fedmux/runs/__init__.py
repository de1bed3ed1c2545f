"""Run folders: their layout, the writer, the reader, frames, statistics and trackers."""
