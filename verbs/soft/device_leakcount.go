package soft

import "sync/atomic"

// liveObjects is the number of contexts, CM channels and identifiers of all providers.
// Changed where each begins and ends; read by Live. It publishes nothing.
var liveObjects atomic.Int64

// Live is how many contexts, CM channels and CM identifiers of this process are
// alive, over all providers. A context lives until all its objects are closed,
// so 0 means that nothing at all was left behind: leak checks ask. Any goroutine
// may call it; it does not block.
func Live() int { return int(liveObjects.Load()) }
