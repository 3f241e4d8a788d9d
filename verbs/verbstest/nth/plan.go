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
	Op     string // the C call it stands for
	Object string // what it was made on
}

// String says which call it is.
func (c Call) String() string { return fmt.Sprintf("call %d, %s on %s", c.N, c.Op, c.Object) }

// Plan says which call fails, and counts them. It may be used from any
// goroutine. The exported members are set before the first call.
type Plan struct {
	// N is the call that fails; 0: none.
	N int
	// Op, if not "", has only this call counted, by its C name.
	Op string
	// Errno is how; default EIO.
	Errno syscall.Errno
	// Busy has only what closes counted: the n-th Close answers ErrBusy, and has
	// done nothing.
	Busy bool
	// Removed has only turns counted: the n-th, and every later one on the same
	// device, answers ErrDeviceRemoved, and has done nothing. Other calls go on as if
	// nobody had told them yet.
	Removed bool

	mu     sync.Mutex // guards what follows; never held while calling
	count  int
	struck *Call
	ops    map[string]int
}

// Count is how many calls were made.
func (p *Plan) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// Struck is the call that was made to fail; ok is false as long as none was.
func (p *Plan) Struck() (c Call, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.struck == nil {
		return Call{}, false
	}
	return *p.struck, true
}

// Ops is how often each call was made, by its C name.
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

// strikes counts a call and tells whether it is the one. Naming the object
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

// hits is strikes for what neither closes nor is a turn.
func (p *Plan) hits(op string, on fmt.Stringer) bool {
	return !p.Busy && !p.Removed && p.strikes(op, on)
}

// fails counts a call and returns its error if it is the one.
func (p *Plan) fails(op string, on fmt.Stringer) error {
	if !p.hits(op, on) {
		return nil
	}
	return &verbs.OpError{Op: op, Object: on.String(), Errno: p.errno()}
}

// closes closes an object, and fails if it is the one.
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
