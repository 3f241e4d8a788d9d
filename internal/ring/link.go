//go:build !race

package ring

// link is an index that one goroutine writes while others may read its old value and throw it away:
// a plain word. By the Go memory model a read of it gives some value that was written
// ("Implementation Restrictions for Programs Containing Data Races": a word or less is never torn),
// and its users need no more; the CAS that publishes or refuses the index orders it. An atomic
// store would be an XCHG on each index that is put back. In race builds it is atomic
// (link_race.go).
type link struct{ v uint32 }

func (l *link) load() uint32   { return l.v }
func (l *link) store(i uint32) { l.v = i }
