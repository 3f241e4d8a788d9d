// Package writeback writes lines of the processor's caches back to memory. Package mem does so to
// make bytes of persistent memory persistent: a stored byte is persistent when its line has left the
// caches. A line may leave them at any time. So without [Persist] nothing is known about which stores
// are persistent, nor in which order they became so.
//
//	clwb         amd64          writes a line back and may keep it cached
//	clflushopt   amd64          writes a line back and drops it
//	clflush      amd64          the same, one line after the other
//	dc cvap      Linux, arm64   cleans a line to the point of persistence
//
// These instructions only begin the write-back, except clflush; the fence behind them waits for it.
// [Best] returns the first that this processor has. Other processors have none: there only the system
// can make bytes persistent (msync).
package writeback
