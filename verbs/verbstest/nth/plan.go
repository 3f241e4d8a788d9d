package nth

import (
	"fmt"
	"maps"
	"slices"
	"strings"
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
	// Then, if not 0, makes one more call fail: the one that many calls after N. It does not if both close objects of one
	// kind: the second may be the first one's retry, and no caller makes a third try.
	Then int
	// Op, if not "", restricts the count to this call, by its C name.
	Op string
	// Errno is the errno of the failure; default EIO.
	Errno syscall.Errno
	// Busy restricts the count to Close: the n-th Close returns ErrBusy, and does nothing.
	Busy bool
	// Removed restricts the count to Execute: the n-th batch, and all later ones on the same
	// device, return ErrDeviceRemoved and do nothing. Other calls continue to succeed.
	Removed bool

	mu     sync.Mutex // guards the following fields; held while an object is asked for its name
	count  int
	struck []Call
	closed string // the operation of the last of struck that closed an object
	ops    map[string]int
	next   map[string]*failing // selected by Fail, by the C name of the operation
	held   map[string]*held    // selected by Hold, by the C name of the operation
}

// held is a call that waits; see Hold.
type held struct{ entered, release chan struct{} }

// failing is the selection of one operation's calls by Fail.
type failing struct {
	on     string // in the name of the object; "": any
	errno  syscall.Errno
	left   int
	failed bool
}

// Fail makes the next n calls of op, by its C name, fail with errno, in addition to the call that N selects.
// It may be called at any time; a later call for the same op replaces an earlier one.
func (p *Plan) Fail(op string, errno syscall.Errno, n int) { p.FailOn("", op, errno, n) }

// FailOn is Fail for the calls on the objects whose names contain on. ibv_poll_cq, ibv_req_notify_cq and the
// posts are calls on their device.
func (p *Plan) FailOn(on, op string, errno syscall.Errno, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		p.next = map[string]*failing{}
	}
	p.next[op] = &failing{on: on, errno: errno, left: n}
}

// Hold makes the next call of op, by its C name, wait before it does anything, as a call waits in the kernel. entered
// is closed when the call has begun to wait. release ends the wait, or lets a later call pass; it may be called again.
func (p *Plan) Hold(op string) (entered <-chan struct{}, release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := &held{make(chan struct{}), make(chan struct{})}
	if p.held == nil {
		p.held = map[string]*held{}
	}
	p.held[op] = h
	return h.entered, sync.OnceFunc(func() { close(h.release) })
}

// wait waits if the call was selected by Hold.
func (p *Plan) wait(op string) {
	p.mu.Lock()
	h := p.held[op]
	delete(p.held, op)
	p.mu.Unlock()
	if h != nil {
		close(h.entered)
		<-h.release
	}
}

// Awaited returns the C names of the operations that Fail was called for and that have not failed since, sorted.
func (p *Plan) Awaited() (ops []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, op := range slices.Sorted(maps.Keys(p.next)) {
		if !p.next[op].failed {
			ops = append(ops, op)
		}
	}
	return ops
}

// Count returns the number of calls so far.
func (p *Plan) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// Injected returns the last call that was made to fail; ok is false as long as none was.
func (p *Plan) Injected() (c Call, ok bool) {
	all := p.injected()
	if len(all) == 0 {
		return Call{}, false
	}
	return all[len(all)-1], true
}

// injected returns the calls that were made to fail.
func (p *Plan) injected() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.struck)
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

// strikes counts a call, and returns the errno with which it fails; 0 if it is not selected. Formatting the
// object allocates, so it is done for a selected call only, and to compare it with the name given to FailOn.
func (p *Plan) strikes(op string, on fmt.Stringer) syscall.Errno {
	p.wait(op)
	return p.strike(op, on, false)
}

// strike is strikes; closes says that the call closes an object.
func (p *Plan) strike(op string, on fmt.Stringer, closes bool) syscall.Errno {
	p.mu.Lock()
	var errno syscall.Errno
	hit := false
	if f := p.next[op]; f != nil && f.left > 0 && (f.on == "" || strings.Contains(on.String(), f.on)) {
		f.left--
		errno, hit, f.failed = f.errno, true, true
	}
	if p.Op == "" || p.Op == op {
		p.count++
		if p.ops == nil {
			p.ops = map[string]int{}
		}
		p.ops[op]++
		then := p.Then > 0 && p.count == p.N+p.Then && !(closes && p.closed == op)
		if !hit && (p.count == p.N || then) {
			errno, hit = p.errno(), true
		}
	}
	n := p.count
	p.mu.Unlock()
	if !hit {
		return 0
	}
	c := Call{N: n, Op: op, Object: on.String()}
	p.mu.Lock()
	if closes {
		p.closed = op
	}
	p.struck = append(p.struck, c)
	p.mu.Unlock()
	return errno
}

// hits is strikes for calls other than Close and Execute.
func (p *Plan) hits(op string, on fmt.Stringer) syscall.Errno {
	if p.Busy || p.Removed {
		return 0
	}
	return p.strikes(op, on)
}

// fails counts a call and returns its error if it is selected.
func (p *Plan) fails(op string, on fmt.Stringer) error {
	errno := p.hits(op, on)
	if errno == 0 {
		return nil
	}
	return &verbs.OpError{Op: op, Object: on.String(), Errno: errno}
}

// closes closes an object, and fails if the call is the selected one.
func (p *Plan) closes(op string, on fmt.Stringer, closing func() error) error {
	p.wait(op)
	if p.Removed {
		return closing()
	}
	if p.Busy {
		if p.strikes(op, on) != 0 {
			return &verbs.OpError{Op: op, Object: on.String(), Errno: syscall.EBUSY, Err: verbs.ErrBusy}
		}
		return closing()
	}
	if err := closing(); err != nil {
		return err
	}
	if errno := p.strike(op, on, true); errno != 0 {
		return &verbs.OpError{Op: op, Object: on.String(), Errno: errno}
	}
	return nil
}

// named is an object without a String of its own.
type named string

func (n named) String() string { return string(n) }
