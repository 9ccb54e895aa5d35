"""What this bundle needs beyond MONAI. It imports MONAI and torch only, so that the bundle runs anywhere."""
