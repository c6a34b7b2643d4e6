"""Problems: one object per file, with everything that the other stages need to know about it."""
