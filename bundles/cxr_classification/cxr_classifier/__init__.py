"""The code of this bundle beyond MONAI. It imports MONAI, torch, pydicom and Pillow only, so that it runs anywhere."""
