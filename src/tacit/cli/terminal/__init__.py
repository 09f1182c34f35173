"""What commands share: printing, progress, pictures, options and how they fail."""
