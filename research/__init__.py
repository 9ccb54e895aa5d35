"""Tables of papers, and studies of our own: the runner, what is run, and what came out. A hospital needs none of it."""
