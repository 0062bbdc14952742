"""Forms of expressions that one instruction computes, whatever they were spelt with."""
