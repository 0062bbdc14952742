"""The bit-exact unit models of KohakuTPU: memory agent, matmul cluster, vector core, control plane.

They execute decoded instruction streams in compiled loops. They know formats and instruction fields; they do
not know kernels, layouts or why a program exists.
"""
