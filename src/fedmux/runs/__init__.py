"""Run folders: their layout, the writer, the reader, frames and trackers."""
