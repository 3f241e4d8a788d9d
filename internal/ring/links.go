package ring

import (
	"fmt"
	"math"
)

// Links has a word for each slot of a table. The word is the link of the list that the slot is on: a free
// list, a submission stack, or a list of the goroutine that owns the slot. A slot is on one list at most,
// so lists of the same table share the words.
//
// A word belongs to the owner of its slot. If the slot is on a free list or a stack, the word belongs to
// this list. A goroutine may read a word that another goroutine owns, but throws the value away.
type Links []link

// none marks the end of a list and an empty head. Indices stay below it.
const none = math.MaxUint16

// NewLinks returns the links of n slots. It panics unless 0 < n < 65535.
func NewLinks(n int) Links {
	checkCount("links", n)
	return make(Links, n)
}

func checkCount(what string, n int) {
	if n <= 0 || n >= none {
		panic(fmt.Sprintf("ring: %s of %d indices", what, n))
	}
}

// Next returns the slot after slot i in a list of the caller: one that TakeAll returned, or that Join made. If
// i is the last of the list, the result means nothing.
func (l Links) Next(i uint32) uint32 { return l[i].load() }

// Join makes next the slot after slot i. The caller owns both.
func (l Links) Join(i, next uint32) { l[i].store(next) }
