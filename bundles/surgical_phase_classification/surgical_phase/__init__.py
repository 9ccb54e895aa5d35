"""The code of this bundle beyond MONAI. It imports MONAI, torch and Pillow only, so that it runs anywhere.

Files that it shares with the bundle for tools are links to that bundle's; imports in them are relative.
"""
