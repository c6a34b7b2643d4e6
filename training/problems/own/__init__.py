"""Problems from a user's own files: the problem file, what it is checked for, and a first draft of one."""
