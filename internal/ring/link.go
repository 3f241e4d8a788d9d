//go:build !race

package ring

// A link is an index in a plain word. One goroutine may write it while others read it and throw the
// value away. By the Go memory model such a read returns a value that was written at some time
// ("Implementation Restrictions for Programs Containing Data Races": a word or less is never torn).
// That suffices, because a CAS follows that fails if the value is outdated. An atomic store would
// cost one XCHG for each index that is put back. In race builds the word is atomic (link_race.go).
type link struct{ v uint16 }

func (l *link) load() uint32   { return uint32(l.v) }
func (l *link) store(i uint32) { l.v = uint16(i) }
