#include "textflag.h"

// func cpuid(leaf uint32) (eax, ebx, ecx, edx uint32)
TEXT ·cpuid(SB), NOSPLIT, $0-24
	MOVL leaf+0(FP), AX
	XORL CX, CX
	CPUID
	MOVL AX, eax+8(FP)
	MOVL BX, ebx+12(FP)
	MOVL CX, ecx+16(FP)
	MOVL DX, edx+20(FP)
	RET

// func clwb(at, end, line uintptr) uintptr
TEXT ·clwb(SB), NOSPLIT, $0-32
	MOVQ at+0(FP), AX
	MOVQ end+8(FP), BX
	MOVQ line+16(FP), CX
next:
	CLWB (AX)
	ADDQ CX, AX
	CMPQ AX, BX
	JB   next
	SFENCE
	MOVQ AX, ret+24(FP)
	RET

// func clflushopt(at, end, line uintptr) uintptr
TEXT ·clflushopt(SB), NOSPLIT, $0-32
	MOVQ at+0(FP), AX
	MOVQ end+8(FP), BX
	MOVQ line+16(FP), CX
next:
	CLFLUSHOPT (AX)
	ADDQ CX, AX
	CMPQ AX, BX
	JB   next
	SFENCE
	MOVQ AX, ret+24(FP)
	RET

// func clflush(at, end, line uintptr) uintptr
//
// CLFLUSH is ordered with stores and needs no fence before later stores. The fence waits for it all
// the same, so that the three functions promise the same.
TEXT ·clflush(SB), NOSPLIT, $0-32
	MOVQ at+0(FP), AX
	MOVQ end+8(FP), BX
	MOVQ line+16(FP), CX
next:
	CLFLUSH (AX)
	ADDQ CX, AX
	CMPQ AX, BX
	JB   next
	SFENCE
	MOVQ AX, ret+24(FP)
	RET
