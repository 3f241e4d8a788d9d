// Package exec runs code that may block: the handlers of results, and the actors.
//
//	Queue ──> in ──TakeAll──> line ──> run
//	   │                       ^ under mu, workers only: Queue takes no lock
//	   └─ fewer than most busy: one more worker
//
// No wake-up is lost: Queue pushes and then reads busy; a worker that finds nothing decrements busy
// and then looks once more. One of the two sees the other, in every interleaving (go test -tags
// verbena_model).
package exec
