"""The code of this bundle beyond MONAI. It imports MONAI and torch only, so that the bundle runs anywhere."""
