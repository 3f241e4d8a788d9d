// Package nth makes the n-th call of the provider contract fail, for every n
// until a scenario passes without the fault having struck.
//
// # The provider
//
// [Wrap] puts a provider around another one. It counts every call of the
// contract that can fail, and lets the one fail that its [Plan] names: the call
// is not carried out, and answers a *verbs.OpError with the call's name, the
// object and an errno. Inside a Turn each group is a call of its own, and an
// errno in the group is its failure. Objects are unwrapped on their way down and
// wrapped on their way up, so that whoever uses the provider sees one world.
//
// Not everything can fail in any way:
//
//   - Turn itself has one error, a removed device, and a device that is removed
//     stays so: with [Plan].Removed turns are what is counted, and all from the
//     n-th on answer ErrDeviceRemoved;
//   - a Close that fails has closed (as the kernel frees its side whatever the
//     adapter answers), or, with [Plan].Busy, where nothing else is counted, answers
//     ErrBusy once and has not.
//
// # The driver
//
// [Drive] runs a scenario on a fresh provider for n = 1, 2, 3 and so on, each run
// under a watchdog that prints the goroutines of one that hangs. A run must leave
// nothing behind, and if it fails, some error in what it returns must be a
// *verbs.OpError that names the call that was made to fail, or the words in which
// the other side was told must. A device that was removed is ErrDeviceRemoved in
// some error. A scenario may also cope.
package nth
