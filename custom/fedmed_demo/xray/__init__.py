"""Synthetic chest X-rays: the phantom of the CT scans projected, bones and findings drawn at the image's own grid."""
