"""Reports and comparisons as pages: one HTML file each, with everything in it."""
