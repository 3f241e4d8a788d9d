// Package ring provides the lock-free queues that hand work between goroutines.
//
//	IndexStack  many push slot indices, one takes all, in order    submission
//	IndexQueue  one pushes slot indices, many pop them, in order   arrived messages
//	FreeList    any goroutine gets and puts free slot indices      op tables
//	Links       the words that the lists of one table share
//	Slots       a FreeList with goroutines waiting for its indices admission
//	MPSC        many push values, one pops them, bounded           mailboxes
//	Listed      whether an object is in an Inbox already           ready lists
//	Inbox       many push objects, one takes all, in order         events
//
// None takes a lock: a goroutine that is descheduled in the middle of an operation blocks no other
// (the comment of line names one exception). Goroutines that wait for Slots park on a
// channel of the Go runtime. None allocates after its constructor, but the first goroutine that waits.
//
// Control words live on the Go heap, where the race detector sees them. Words that different
// goroutines write are [linePad] bytes apart.
package ring

// linePad is the distance in bytes between words written by different goroutines. Cache lines have
// 64 bytes on amd64 and most arm64 processors, but amd64 prefetches pairs of them, and some arm64
// processors have lines of 128 bytes.
const linePad = 128

// pad fills the rest of linePad behind a word of 8 bytes.
type pad [linePad - 8]byte
