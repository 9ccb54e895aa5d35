"""Methods: what the sites of each role do, and what the server makes of it. A file a method, an object each."""
