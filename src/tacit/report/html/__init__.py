"""Reports and comparisons as pages: one self-contained HTML file each."""
