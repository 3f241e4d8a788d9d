package soft

import "sync/atomic"

// liveObjects counts the contexts, CM channels and CM identifiers of all providers. It is changed
// where each begins and ends, and read by Live. It publishes nothing.
var liveObjects atomic.Int64

// Live returns the number of living contexts, CM channels and CM identifiers of this process,
// over all providers. A context lives until all its objects are closed, so 0 means no leak at
// all. Any goroutine may call it; it does not block.
func Live() int { return int(liveObjects.Load()) }
