// Package exec runs code that may block: the handlers of results, and the actors.
//
//	Queue ──> in ──TakeAll──> line ──> run
//	   │                       ^ under mu, workers only: Queue takes no lock
//	   ├─ if busy < most: wakes a parked worker, or starts one
//	   └─ if none is busy, and in is empty: given, in place of in and line
//
// No queued value is left without a worker: Queue pushes the value and then reads how many workers are busy;
// a worker that finds no value counts itself off and then looks again before it parks. So Queue sees the smaller
// number, or the worker sees the value, in every interleaving (go test -tags verbena_model).
package exec
