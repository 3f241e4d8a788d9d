// Package nth makes the n-th call of the provider contract fail, for each n until a scenario
// passes without the fault being applied.
//
// # The provider
//
// [Wrap] puts a provider around another one. It counts the calls of the contract that can fail,
// and fails the one that its [Plan] selects: the call is not carried out, and returns a
// *verbs.OpError with the call's name, the object and an errno. Inside a batch each group is a
// call of its own, and an errno in the group is its failure. Objects are unwrapped on their way
// down and wrapped on their way up, so that users of the provider see wrapped objects only.
//
// Some calls can fail only in certain ways:
//
//   - Execute itself has one error, a removed device, and a removed device stays
//     so: with [Plan].Removed batches are counted, and all from the n-th on return
//     ErrDeviceRemoved;
//   - a Close that fails has closed (as the kernel frees its side whatever the
//     adapter answers). With [Plan].Busy only Close is counted: it returns ErrBusy
//     once and has not closed.
//
// # The driver
//
// [Drive] runs a scenario on a fresh provider for n = 1, 2, 3 and so on, each run under a
// watchdog that prints the goroutines of a hanging one. A run must leave nothing behind, and if
// it fails, some error in its result must be a *verbs.OpError that names the failed call, or the
// text that was sent to the other side must name it. A device that was removed is
// ErrDeviceRemoved in some error. A scenario may also succeed despite the fault.
package nth
