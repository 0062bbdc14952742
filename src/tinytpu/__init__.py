"""TinyTPU: a sequencer, a vector unit, a systolic array of int8 and its memories, as a simulated machine."""
