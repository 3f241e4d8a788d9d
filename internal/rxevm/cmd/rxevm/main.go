// Command rxevm runs things in the test machine of internal/rxevm.
//
//	rxevm check                     says what this system lacks for it; exit code 3 if anything
//	rxevm prepare                   makes the image, and installs what is missing if it may;
//	                                exit code 3, and why, where there can be no machine
//	rxevm emulator                  says which program runs those of arm64, and fetches it if
//	                                there is none; exit code 3, and why, where it cannot be had
//	rxevm run  [flags] -- SHELL...  a shell command in a new machine, in this folder, writable
//	rxevm with [flags] -- CMD...    a command of this host, beside a new machine in which
//	                                every "rxevm exec" below it runs its program
//	rxevm exec BINARY ARGS...       for go test -exec: a test binary in that machine, or in
//	                                one of its own; this folder and the repository are there
//	                                at the same path, profiles and coverage come out
//
// The flags of run and with: -cpus, -memory (MB), -numa (nodes), -share DIR
// (read-only, may be repeated).
//
// The environment: VERBENA_RXEVM_CACHE (where the image is kept),
// VERBENA_RXEVM_INSTALL=1 (root may install what is missing),
// VERBENA_RXEVM_MIRROR (of Debian), VERBENA_RXEVM_ACCEL (tcg or kvm, untried).
// What else begins with VERBENA_ goes in to the commands.
package main
