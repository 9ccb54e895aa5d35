"""A synthetic operating room: laparoscopic videos with the truth about phase, tools and parts of the instruments."""
