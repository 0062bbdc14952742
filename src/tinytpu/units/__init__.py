"""TinyTPU's units as compiled, bit-exact and cycle-exact models (datasheet 3 to 7, 9, 10).

Decides what an encoded program computes and when; it must not know text, bundles, graphs or tinygrad.
"""
