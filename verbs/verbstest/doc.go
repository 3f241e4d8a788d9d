// Package verbstest is the conformance suite: it checks the required behavior of all providers of
// [verbs.Provider] against the contract alone.
//
// # Running it
//
// A provider's own test makes a [Pair] of endpoints and calls [Run]:
//
//	caps, err := verbstest.CapsOf(ctxA, ctxB)
//	...
//	verbstest.Run(t, verbstest.Pair{
//		Name: "soft_virtual",
//		A:    verbstest.Endpoint{Provider: p, Context: ctxA},
//		B:    verbstest.Endpoint{Provider: p, Context: ctxB},
//		Caps: caps,
//	})
//
// The two endpoints may be of one provider or of two. Each case is a subtest named after the rule
// it checks, and cites it: "semantics N" is numbered semantic N of the design's reference, "IBTA"
// the InfiniBand Architecture Specification volume 1, "rxe" the Linux software RNIC, a name with
// (3) a manual page of rdma-core.
//
// # Not applicable
//
// A case declares its requirements ([Caps]). If the pair lacks one, the case is not applicable:
// it is skipped with the reason, counted separately, and never counted as passed. Capabilities
// that the device can report are verified: the case caps_cover_the_device fails if the record
// omits one.
//
// # Devices
//
// [Devices], implemented by the tester, takes ports down and unplugs devices: only a device that
// the pair does not use, so that only the objects of the case are lost.
//
// # Time
//
// With a [Clock] the suite is the only driver: it steps the endpoints and moves virtual time to
// the next event, so that a timeout costs nothing and runs are reproducible. Without one it polls
// in real time with a deadline.
//
// # Results
//
// [Run] logs a table. If the environment variable VERBENA_CONFORMANCE_OUT names a directory, each
// run also writes its [Report] there as <pair name>.json. From the reports the command table
// makes docs/conformance.md (sh scripts/conformance.sh), and [Documented] fails a test whose run
// differs from that page.
//
// # Writing a case
//
// A case is a row in one of the tables in cases_*.go. It gets a [Case] with two ends, makes its
// objects through them, and need not clean up: objects are closed in reverse order, and a case
// that leaves anything behind fails. Assertions state the rule.
package verbstest
