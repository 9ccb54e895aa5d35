"""The code of this bundle beyond MONAI. It imports MONAI, torch and Pillow only, so that it runs anywhere."""
