package runtime

import "sync/atomic"

// ledger counts the credits of one direction at the end that receives. Both counts are in one word, so
// that each credit is in exactly one place whenever the word is read:
//
//	63   62            32 31           0
//	┌────┬───────────────┬──────────────┐
//	│over│ unreturned    │ granted      │
//	└────┴───────────────┴──────────────┘
//
// Unreturned credits are those that released messages have freed, or that the window has grown by, and
// that this end has not granted yet. Granted counts all credits ever granted to the peer; it wraps. Over is
// set when the connection is gone. Any goroutine may call the methods; they do not block.
type ledger struct {
	// word is changed by goroutines that release messages (add), that send frames (take, untake), and by
	// the holder (all). It publishes nothing: a receive is submitted before its credit is added, and the
	// pass that posts the frame with the credit collects the receives itself.
	word atomic.Uint64
	// keep is how many unreturned credits are not granted, because the window is to become smaller. The holder
	// writes it; goroutines that return or grant credits read it. It publishes nothing: a credit that is granted
	// or not in the moment of a change makes no difference.
	keep atomic.Uint32
}

const (
	ledgerOne  = 1 << 32 // one unreturned credit
	ledgerOver = 1 << 63
)

// unreturnedOf and grantedOf are the counts of a word.
func unreturnedOf(v uint64) uint32 { return uint32(v>>32) &^ (1 << 31) }
func grantedOf(v uint64) uint32    { return uint32(v) }

// start sets the number of credits that the peer has from the beginning.
func (l *ledger) start(n int) { l.word.Store(uint64(n)) }

// unreturned returns the number of unreturned credits, and granted the number of credits ever granted.
func (l *ledger) unreturned() int { return int(unreturnedOf(l.word.Load())) }
func (l *ledger) granted() uint32 { return grantedOf(l.word.Load()) }

// grantable returns the number of unreturned credits that take would grant.
func (l *ledger) grantable() int { return max(l.unreturned()-int(l.keep.Load()), 0) }

// add adds n unreturned credits and returns how many take would grant. If the ledger is over, over is true: the
// receives of these credits belong to no connection any more.
func (l *ledger) add(n uint32) (grantable int, over bool) {
	v := l.word.Add(uint64(n) * ledgerOne)
	return int(unreturnedOf(v)) - int(l.keep.Load()), v&ledgerOver != 0
}

// take grants all unreturned credits except those to keep, and returns their number. If the ledger is over, it
// grants none.
func (l *ledger) take() uint32 {
	for {
		v := l.word.Load()
		n := unreturnedOf(v)
		if n == 0 || v&ledgerOver != 0 { // none is the usual case of an end that only sends
			return 0
		}
		kept := min(n, l.keep.Load())
		if n -= kept; n == 0 {
			return 0
		}
		if l.word.CompareAndSwap(v, uint64(kept)*ledgerOne|uint64(grantedOf(v)+n)) {
			return n
		}
	}
}

// untake undoes take for n credits that no frame has carried.
func (l *ledger) untake(n uint32) {
	for {
		v := l.word.Load()
		if l.word.CompareAndSwap(v, v&ledgerOver|uint64(unreturnedOf(v)+n)*ledgerOne|uint64(grantedOf(v)-n)) {
			return
		}
	}
}

// withdraw takes up to most unreturned credits away and returns their number: the window shrinks by them.
func (l *ledger) withdraw(most int) int {
	for {
		v := l.word.Load()
		n := min(int(unreturnedOf(v)), most)
		if n <= 0 || v&ledgerOver != 0 {
			return 0
		}
		if l.word.CompareAndSwap(v, v-uint64(n)*ledgerOne) {
			return n
		}
	}
}

// end ends the ledger, and returns the number of unreturned credits and of credits ever granted.
func (l *ledger) end() (unreturned int, granted uint32) {
	v := l.word.Or(ledgerOver)
	return int(unreturnedOf(v)), grantedOf(v)
}
