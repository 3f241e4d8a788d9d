// Package exec runs code that may block: the handlers of results, and the actors.
//
//	Queue ──> in ──TakeAll──> line ──> run
//	   │                       ^ under mu, workers only: Queue takes no lock
//	   └─ if busy < most: wakes a parked worker, or starts one
//
// No queued value is left without a worker: Queue pushes the value and then reads busy; a worker
// that finds no value decrements busy and then looks again before it parks. So Queue sees the smaller busy, or the
// worker sees the value, in every interleaving (go test -tags verbena_model).
package exec
