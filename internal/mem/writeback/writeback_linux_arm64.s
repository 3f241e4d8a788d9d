#include "textflag.h"

// func cacheType() uint64
TEXT ·cacheType(SB), NOSPLIT, $0-8
	MRS  CTR_EL0, R0
	MOVD R0, ret+0(FP)
	RET

// func cvap(at, end, line uintptr) uintptr
TEXT ·cvap(SB), NOSPLIT, $0-32
	MOVD at+0(FP), R0
	MOVD end+8(FP), R1
	MOVD line+16(FP), R2
next:
	DC   CVAP, R0
	ADD  R2, R0, R0
	CMP  R1, R0
	BLO  next
	DSB  $15 // SY: the cleaning has ended
	MOVD R0, ret+24(FP)
	RET
