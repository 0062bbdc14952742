"""Numbers of the vector core's instruction set, as plain integers that compiled loops can freeze.

Decides nothing: every value is read from the declarations in kohakutpu.isa.vector.
"""

from kohakutpu.isa.vector import ENV_DESC, ENV_IMEM, ENV_RUN, FAULT, MODE, OP, RED, SRC

VMOV, VNEG, VABS = int(OP.VMOV), int(OP.VNEG), int(OP.VABS)
VADD, VSUB, VMUL, VFMA, VFNMA = int(OP.VADD), int(OP.VSUB), int(OP.VMUL), int(OP.VFMA), int(OP.VFNMA)
VMAX, VMIN, VSEL = int(OP.VMAX), int(OP.VMIN), int(OP.VSEL)
VCMPLT, VCMPGT, VCMPEQ = int(OP.VCMPLT), int(OP.VCMPGT), int(OP.VCMPEQ)
VEXP2, VLOG2, VINV, VRSQRT = int(OP.VEXP2), int(OP.VLOG2), int(OP.VINV), int(OP.VRSQRT)
VCVT, VRED, VLD, VST = int(OP.VCVT), int(OP.VRED), int(OP.VLD), int(OP.VST)
VBCAST, VSHUF = int(OP.VBCAST), int(OP.VSHUF)
VSETVL, VSETMODE, VSETI, VLOOP = int(OP.VSETVL), int(OP.VSETMODE), int(OP.VSETI), int(OP.VLOOP)
VBAR, VFILL, VDRAIN, VHALT = int(OP.VBAR), int(OP.VFILL), int(OP.VDRAIN), int(OP.VHALT)
FIRST_OTHER = VCVT  # opcodes below it are ALU operations

SUM, MAX, MIN, SUMSQ = int(RED.SUM), int(RED.MAX), int(RED.MIN), int(RED.SUMSQ)
DOT, EXPSUM, ANY, ALL = int(RED.DOT), int(RED.EXPSUM), int(RED.ANY), int(RED.ALL)

TREE = int(MODE.TREE)
SEL_V, SEL_S, SEL_C, SEL_K = int(SRC.V), int(SRC.S), int(SRC.C), int(SRC.K)

F_DTYPE, F_VSRC, F_CHAIN = int(FAULT.F_DTYPE), int(FAULT.F_VSRC), int(FAULT.F_CHAIN)
F_OPCODE, F_LEN, F_LOOP = int(FAULT.F_OPCODE), int(FAULT.F_LEN), int(FAULT.F_LOOP)
F_VL, F_REDVL, F_CUDATA = int(FAULT.F_VL), int(FAULT.F_REDVL), int(FAULT.F_CUDATA)
F_NONFIN = int(FAULT.F_NONFIN)

IMEM_WRITE, DESC_WRITE, RUN = int(ENV_IMEM), int(ENV_DESC), int(ENV_RUN)
