"""One file per log format, each with its declaration and its mapping. Reading and accounting are elsewhere."""
