"""A made-up operating room: laparoscopic videos with the truth about phase, tools and the parts of the instruments."""
