"""From a folder of CT volumes or X-rays to a site that can train: find, check, split, write.

``fedmed prepare ct`` is the command; :func:`fedmed.data.prepare.ct_site.prepare_site` is the same as a function.
"""
