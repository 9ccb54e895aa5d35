"""The code of this bundle beyond MONAI: networks for clips of frames, their weights, and vectors that describe a site.

It imports torch and transformers; nothing here needs FedMed. Files that it shares with the bundle for tools are links
to that bundle's; imports in them are relative.
"""
