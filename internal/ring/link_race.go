//go:build race

package ring

import "sync/atomic"

// link is described in link.go. It is atomic here, because the race detector would report the
// intended race.
type link struct{ v atomic.Uint32 }

func (l *link) load() uint32   { return l.v.Load() }
func (l *link) store(i uint32) { l.v.Store(i) }
