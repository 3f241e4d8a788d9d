// Package interop has only tests: of package rpma against librpma 1.3, the C library, on real devices. The peer is
// a program of ours in C (testdata/peer.c). Both ends follow the same script:
//
//	the active end connects   each sends the descriptors of its memory and of its configuration
//	the active end drives     and the passive one answers
//	the passive end drives    and the active one answers
//	the second end sends a message of no bytes, and the first one disconnects
//
// To drive is to write, flush, write atomically, read, and send messages and numbers. The tests check the memory,
// the descriptors byte by byte, the completions, and the output of the program line by line.
//
// VERBENA_TEST_DEVICES=A,B names the devices; each test runs on A alone, from A to B, and from the software RNIC to
// Soft-RoCE. The tests compile the program, with cc or tcc (Debian: gcc, or tcc and libc6-dev; librpma-dev,
// libibverbs-dev).
package interop
