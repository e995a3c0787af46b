"""What each library does for each work. A work's name says what it is; a library that cannot do it leaves it out."""
