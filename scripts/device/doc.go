// Command device reports what a maintainer needs from a machine with an RDMA device that only its
// owner can reach. scripts/device.sh runs it, after the suites, for `make test-device`; with
// DEV=rxe0 all of that happens in the test machine (internal/rxevm).
//
//	device [flags] DEV           both ends on one device
//	device [flags] DEV,DEV       two devices that reach each other: the first dials
//	device -from FILE [flags]    a report that was made elsewhere: its text, with the deviations
//	device mask                  copies its input to its output, without secrets
//
//	-json FILE         the report as JSON, in the form of [Report]; -: standard output
//	-text FILE         the same for people; by default standard output, if there is no -json
//	-conformance DIR   reports of the conformance suite (VERBENA_CONFORMANCE_OUT), for the deviations
//	-conns N           connections that are dialed at once; default 1000
//	-limit D           the longest time of each part; default 2m
//	-revision REV      of this repository
//
// A device without a prefix is one of libibverbs; "soft:soft0" is the software RNIC's.
//
// # The parts
//
//	place       the machine, its system and limits, and the device in it (place*.go)
//	granted     the capacities that the device grants: limits found by bisection, completion
//	            queues, pinned memory (granted*.go)
//	agreed      the attributes of queue pairs that the runtime has connected, at both ends, and the
//	            time after which the device gives up a lost peer (agreed.go)
//	timed       control calls, registrations, dials, the data path's steps (timed*.go)
//	counted     counters of the runtime and of the driver, asynchronous events (counted.go)
//	deviations  cases of the conformance suite that the device does not pass (deviations.go)
//
// An item that could not be found out has the reason in its place. A part that does not end within its
// limit is left behind, and its items say so; each part opens the device anew, so the others
// do not depend on it. The parts are listed at the end of the report, with their times.
//
// # No secrets
//
// A report has no host name, user or home folder, no MAC address, GUID or serial number, and no
// address: an address is replaced by its kind and a number that is the same for equal addresses of the report
// (mask.go). What device.sh appends to it, the output of other programs, has numbers of its own.
// Names of devices and interfaces stay, without hexadecimal parts that are a MAC address or a GUID.
package main
