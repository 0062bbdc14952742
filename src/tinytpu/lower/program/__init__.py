"""A straight line of tile code as a program: its order, its registers and slots, its loops."""
