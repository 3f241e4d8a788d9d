//go:build !race && !interleave

package futures

// step is where the model test (model_on.go) may switch to another goroutine; here it is nothing.
func step() {}

// These tell the model test what was read.
func seen(uint64)              {}
func seenBool(ok bool) bool    { return ok }
func seenLoad(v uint64) uint64 { return v }
func seenCAS(ok bool) bool     { return ok }

// pause lets others run while the caller waits for w's word to differ from seen.
func pause(w *Waiter, seen uint64) { yieldProcessor() }

// receive takes the signal that ends a park; ok is false when done closed first.
func receive(wake <-chan Signal, done <-chan struct{}) (sig Signal, ok bool) {
	if done == nil {
		return <-wake, true
	}
	select {
	case sig = <-wake:
		return sig, true
	case <-done:
		return 0, false
	}
}
