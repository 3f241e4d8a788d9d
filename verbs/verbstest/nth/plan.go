package nth

import (
	"fmt"
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// Call is one call of the contract.
type Call struct {
	N      int    // counted from 1
	Op     string // the C call it corresponds to
	Object string // the object it was made on
}

// String describes the call.
func (c Call) String() string { return fmt.Sprintf("call %d, %s on %s", c.N, c.Op, c.Object) }

// Plan selects the call that fails, and counts the calls. It may be used from any goroutine. The
// exported members are set before the first call.
type Plan struct {
	// N is the call that fails; 0: none.
	N int
	// Op, if not "", restricts the count to this call, by its C name.
	Op string
	// Errno is the errno of the failure; default EIO.
	Errno syscall.Errno
	// Busy restricts the count to Close: the n-th Close returns ErrBusy, and does nothing.
	Busy bool
	// Removed restricts the count to Execute: the n-th batch, and all later ones on the same
	// device, return ErrDeviceRemoved and do nothing. Other calls continue to succeed.
	Removed bool

	mu     sync.Mutex // guards the following fields; never held while calling
	count  int
	struck *Call
	ops    map[string]int
}

// Count returns the number of calls so far.
func (p *Plan) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// Injected returns the call that was made to fail; ok is false as long as none was.
func (p *Plan) Injected() (c Call, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.struck == nil {
		return Call{}, false
	}
	return *p.struck, true
}

// Ops returns the number of calls by their C names.
func (p *Plan) Ops() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := map[string]int{}
	for op, n := range p.ops {
		m[op] = n
	}
	return m
}

func (p *Plan) errno() syscall.Errno {
	if p.Errno == 0 {
		return syscall.EIO
	}
	return p.Errno
}

// strikes counts a call and reports whether it is the selected one. Formatting the object
// allocates, so it is done for that one only.
func (p *Plan) strikes(op string, on fmt.Stringer) bool {
	if p.Op != "" && p.Op != op {
		return false
	}
	p.mu.Lock()
	p.count++
	if p.ops == nil {
		p.ops = map[string]int{}
	}
	p.ops[op]++
	hit := p.count == p.N
	n := p.count
	p.mu.Unlock()
	if !hit {
		return false
	}
	c := &Call{N: n, Op: op, Object: on.String()}
	p.mu.Lock()
	p.struck = c
	p.mu.Unlock()
	return true
}

// hits is strikes for calls other than Close and Execute.
func (p *Plan) hits(op string, on fmt.Stringer) bool {
	return !p.Busy && !p.Removed && p.strikes(op, on)
}

// fails counts a call and returns its error if it is the selected one.
func (p *Plan) fails(op string, on fmt.Stringer) error {
	if !p.hits(op, on) {
		return nil
	}
	return &verbs.OpError{Op: op, Object: on.String(), Errno: p.errno()}
}

// closes closes an object, and fails if the call is the selected one.
func (p *Plan) closes(op string, on fmt.Stringer, closing func() error) error {
	if p.Removed {
		return closing()
	}
	if p.Busy {
		if p.strikes(op, on) {
			return &verbs.OpError{Op: op, Object: on.String(), Errno: syscall.EBUSY, Err: verbs.ErrBusy}
		}
		return closing()
	}
	if err := closing(); err != nil {
		return err
	}
	return p.fails(op, on)
}

// named is an object without a String of its own.
type named string

func (n named) String() string { return string(n) }
