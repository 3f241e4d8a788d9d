// Command rxevm runs commands in the test machine of internal/rxevm.
//
//	rxevm check                     prints what this system lacks for it; exit code 3 if anything
//	rxevm prepare                   makes the image, and installs missing tools if permitted;
//	                                exit code 3, with the reason, where there can be no machine
//	rxevm emulator                  prints the program that runs those of arm64, and fetches it if
//	                                there is none; exit code 3, with the reason, where it fails
//	rxevm run  [flags] -- SHELL...  a shell command in a new machine, in this folder, writable
//	rxevm with [flags] -- CMD...    a command of this host, beside a new machine in which
//	                                any "rxevm exec" below it runs its program
//	rxevm exec BINARY ARGS...       for go test -exec: a test binary in that machine, or in
//	                                a new one; this folder and the repository are there
//	                                at the same path, profiles and coverage come out
//
// The flags of run and with: -cpus, -memory (MB), -numa (nodes), -share DIR (read-only, may be
// repeated), -nvdimm FILE (persistent memory, a multiple of 128 MiB).
//
// The environment: VERBENA_RXEVM_CACHE (folder of the image), VERBENA_RXEVM_INSTALL=1 (root may
// install missing packages), VERBENA_RXEVM_MIRROR (of Debian), VERBENA_RXEVM_ACCEL (tcg or kvm,
// without a probe). Other variables that begin with VERBENA_ are passed to the commands.
package main
