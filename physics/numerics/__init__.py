"""What the equations are solved with: grids, finite volumes, iterations, time steps, random fields and norms."""
