package runtime

import "github.com/verbena-rdma/verbena/reactor"

// memLock is a mutex for which a caller waits only until its context ends. It is for sections that may
// enter the kernel for long, such as to pin the pages of a large region. Goroutines get it in the order
// in which they came.
type memLock struct {
	// held has an element while the mutex is locked.
	held chan struct{}
}

func newMemLock() memLock { return memLock{make(chan struct{}, 1)} }

// Lock locks the mutex.
func (l memLock) Lock() { l.held <- struct{}{} }

// LockUntil locks the mutex, or returns the error of asked if asked ends first. A nil asked never ends.
func (l memLock) LockUntil(asked reactor.DoneContext) error {
	select {
	case l.held <- struct{}{}:
		return nil
	default:
	}
	select {
	case l.held <- struct{}{}:
		return nil
	case <-asked:
		return asked.Err()
	}
}

// Unlock unlocks the mutex.
func (l memLock) Unlock() { <-l.held }
