"""FedMed's app for MONAI Label: 3D and 2D segmentation and classification by local bundles, loaded strictly."""
