"""What moves the parameters of a stack: solvers behind one protocol, and the forms of an epoch of Adam."""
