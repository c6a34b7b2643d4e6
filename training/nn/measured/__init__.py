"""What a measured field shows: its differences, its scale, and the interfaces below the spacing of its grid."""
